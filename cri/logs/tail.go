// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"context"
	"io"
)

// tailStart returns the offset at which the last n lines of a file, and an unfinished line after them, start.
func tailStart(file io.ReaderAt, size, n int64) (int64, error) {
	buf := make([]byte, min(size, firstBuffer))
	for right := size; right > 0; {
		chunk := buf[:min(right, int64(len(buf)))]
		right -= int64(len(chunk))
		if _, err := file.ReadAt(chunk, right); err != nil {
			return 0, err
		}
		for {
			i := bytes.LastIndexByte(chunk, '\n')
			if i < 0 {
				break
			}
			if n == 0 {
				return right + int64(i) + 1, nil
			}
			n--
			chunk = chunk[:i]
		}
	}
	return 0, nil
}

// countLines returns the number of newlines in r.
func countLines(ctx context.Context, r io.Reader) (n int64, err error) {
	buf := make([]byte, firstBuffer)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		got, err := r.Read(buf)
		n += int64(bytes.Count(buf[:got], []byte{'\n'}))
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
