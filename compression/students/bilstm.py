"""The BiLSTM student (section 6.1.4 of the thesis, after Tang et al., 2019). Settings: configs/students/bilstm.yaml."""

from compression.students.recurrent import BidirectionalEncoder
from compression.students.settings import StudentSettings


def make_bilstm(settings: StudentSettings) -> BidirectionalEncoder:
    """One layer of LSTM in each direction."""
    return BidirectionalEncoder("lstm", settings.embedding_dim, settings.encoder_hidden_dim, settings.pooling)
