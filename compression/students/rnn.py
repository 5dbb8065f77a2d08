"""The RNN student: a BiLSTM with Elman cells (section 6.1.4 of the thesis). Settings: configs/students/rnn.yaml."""

from compression.students.recurrent import BidirectionalEncoder
from compression.students.settings import StudentSettings


def make_rnn(settings: StudentSettings) -> BidirectionalEncoder:
    """One layer of Elman cells (tanh) in each direction."""
    return BidirectionalEncoder("rnn", settings.embedding_dim, settings.encoder_hidden_dim, settings.pooling)
