// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dirWatch tells when files of a directory are written, made or renamed.
type dirWatch struct {
	queue *inotify
}

func openDirWatch(dir string) (*dirWatch, error) {
	queue, err := openInotify()
	if err != nil {
		return nil, err
	}
	if _, err := queue.add(dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		queue.close()
		return nil, err
	}
	return &dirWatch{queue}, nil
}

func (w *dirWatch) close() { w.queue.close() }

// wait returns when something has happened since the last call, or after d, or with the cause when ctx ends.
func (w *dirWatch) wait(ctx context.Context, d time.Duration) error {
	if err := w.queue.file.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = w.queue.file.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	_, err := w.queue.read()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
