"""The training program: a recurrent network learns to read digits, row by row.

options -> requirements, layers, data -> model -> loop -> results, pictures
"""
