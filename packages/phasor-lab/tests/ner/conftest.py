import pytest

from phasor_lab.ner import TrainedSpans, train

from .toy import DEV, TOKENIZER, TRAIN, model, train_config


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedSpans:
    """A run that has learnt the toy language: an efficient head on a BiLSTM."""
    return train(model(), TOKENIZER, TRAIN, DEV, train_config(epochs=12), tmp_path_factory.mktemp("trained"))
