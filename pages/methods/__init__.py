"""The screen Methods."""
