"""Types of values: conversion to bytes and columns, compatibility of old bytes, hashes of keys."""
