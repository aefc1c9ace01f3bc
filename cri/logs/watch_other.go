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

// Watcher shares inotify instances on Linux. On other systems it does nothing: logs are polled.
type Watcher struct{}

// dirWatch is never created: logs are polled.
type dirWatch struct{}

func (*Watcher) watchDir(string) (*dirWatch, error) { return nil, errNoWatch() }

func (*dirWatch) closeWatch() {}

func (*dirWatch) awaitEvent(context.Context, time.Duration) error { return errNoWatch() }

// fileWatch is never created: logs are polled.
type fileWatch struct{}

// fileWatchRequest is never created: logs are polled.
type fileWatchRequest struct {
	fired chan struct{}
}

func openFileWatch() (*fileWatch, error) { return nil, errNoWatch() }

func (*fileWatch) awaitWrite(string) (fileWatchRequest, error) {
	return fileWatchRequest{}, errNoWatch()
}

func (*fileWatch) cancelWait(fileWatchRequest) {}

func (*fileWatch) readEvents() error { return errNoWatch() }

func (*fileWatch) closeQueue() {}

func errNoWatch() error { return fmt.Errorf("watch logs: %w", errors.ErrUnsupported) }
