"""``python -m recsim_train``: what torchrun starts on every host."""

from recsim_train.cli.main import main

if __name__ == "__main__":
    main()
