// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"io"
)

// findTail finds the file and the line where the last lines of the whole log begin. Compressed files cannot be read
// from their end, so that all is read once to count.
func (c *chain) findTail(ctx context.Context) error {
	n := c.o.tail()
	if n < 0 {
		return nil
	}
	type part struct {
		prev, key string
		lines     int64
	}
	var parts []part
	err := c.openAfter("")
	for err == nil {
		var lines int64
		if lines, err = count(ctx, c.lines.source); err != nil {
			break
		}
		parts = append(parts, part{c.prev, c.key, lines})
		if c.key == "" {
			break
		}
		err = c.openAfter(c.key)
	}
	for i := len(parts) - 1; i >= 0 && err == nil; i-- {
		c.prev, c.tailKey = parts[i].prev, parts[i].key
		if n <= parts[i].lines {
			c.skipLines = parts[i].lines - n
			break
		}
		n -= parts[i].lines
	}
	return err
}

// skip leaves out the lines before the tail.
func (c *chain) skip() error {
	if c.key != c.tailKey && c.tailKey != "" {
		return nil // removed since: this is the next file
	}
	for range c.skipLines {
		_, err := c.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return err
		}
	}
	return nil
}
