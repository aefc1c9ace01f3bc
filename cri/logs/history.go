// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"io"
)

// findTail finds the start of the last TailLines lines of the log, as a file and the number of lines before the start.
func (c *logChain) findTail(ctx context.Context) error {
	n := c.o.tailLines()
	if n < 0 {
		return nil
	}
	type part struct {
		prev, key string
		lines     int64
	}
	// The lines of all files are counted, because compressed files cannot be read backwards.
	var parts []part
	err := c.openAfter("")
	for err == nil {
		var lines int64
		if lines, err = countLines(ctx, c.lines.source); err != nil {
			break
		}
		parts = append(parts, part{c.previousKey, c.key, lines})
		if c.key == "" {
			break
		}
		err = c.openAfter(c.key)
	}
	for i := len(parts) - 1; i >= 0 && err == nil; i-- {
		c.previousKey, c.tailKey = parts[i].prev, parts[i].key
		if n <= parts[i].lines {
			c.skipLines = parts[i].lines - n
			break
		}
		n -= parts[i].lines
	}
	return err
}

// skipToTail skips the lines before the tail, which is the last TailLines lines of the log. It does nothing if the tail does
// not start in the open file.
func (c *logChain) skipToTail() error {
	if c.key != c.tailKey && c.tailKey != "" {
		return nil // the file with the start of the tail was removed: this is the next file
	}
	for range c.skipLines {
		_, err := c.lines.nextLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return err
		}
	}
	return nil
}
