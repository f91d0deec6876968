"""(message, version) -> flat encode and decode functions, compiled from generated source on first use."""

from protocol.decoder_source import Decoder, build_decoder
from protocol.encoder_source import Encoder, build_encoder

__all__ = ["Decoder", "Encoder", "build_decoder", "build_encoder"]
