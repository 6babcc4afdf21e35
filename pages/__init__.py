"""The screens: a folder each; what several of them use stands in `shared`, how every visit comes in in `entry`."""
