"""What one request may ask for. Every limit is part of the OpenAPI schema and is refused in words."""

from letgo.errors import LetgoError

MAX_STEPS = 1000
MAX_TRIES = 32
MAX_SEEDS = 64  # seeds of one race, per rule
MAX_PUZZLE = 4096  # characters
MAX_CELLS = 1024  # a graph of 32 nodes, a maze of side 32
MAX_BODY = 65_536  # bytes: the longest puzzle, every character written as two \u escapes, and room to spare
MAX_SIGMA = 100.0
LEAST_BELIEF = -1e6  # a self-likelihood that every board is above
MAX_SEED = 2**32 - 1
QUEUE = 64  # requests under way or waiting, unless --queue says otherwise
BODY_SECONDS = 10.0  # how long a body may take to arrive
REQUEST_SECONDS = 10.0  # how long a connection may take to send the head of its next request
WRITE_SECONDS = 30.0  # how long a client may leave unread what was sent to it
BACKLOG = 64  # events of a stream that wait to be sent; its boards stand still until some are
MAX_HEADERS = 100
MAX_HEAD = 16_384  # bytes of a request's target and headers
MAX_CONNECTIONS = 512  # open at once, fewer where the system allows fewer files


class Busy(LetgoError):
    """All places are taken."""

    status = 429


class UnknownModel(LetgoError):
    """No model of this name is offered."""

    status = 404


class Unavailable(LetgoError):
    """The models could not be read."""

    status = 503
