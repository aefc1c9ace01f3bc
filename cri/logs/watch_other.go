// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package logs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Watcher lets all reads that follow a log share what the system has for it, which is nothing: logs are polled.
type Watcher struct{}

// dirWatch is never made: logs are polled.
type dirWatch struct{}

func (*Watcher) open(string) (*dirWatch, error) { return nil, noWatch() }

func (*dirWatch) close() {}

func (*dirWatch) wait(context.Context, time.Duration) error { return noWatch() }

// fileWatch is never made: logs are polled.
type fileWatch struct{}

type notify struct {
	fired chan struct{}
}

func openFileWatch() (*fileWatch, error) { return nil, noWatch() }

func (*fileWatch) arm(string) (notify, error) { return notify{}, noWatch() }

func (*fileWatch) disarm(notify) {}

func (*fileWatch) run() error { return noWatch() }

func (*fileWatch) close() {}

func noWatch() error { return fmt.Errorf("watch logs: %w", errors.ErrUnsupported) }
