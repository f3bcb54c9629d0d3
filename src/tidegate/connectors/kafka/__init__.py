"""Kafka as a source and as a sink; needs tidegate[kafka]."""
