// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"context"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// What a container may leave as its termination message. Source: pkg/kubelet/container/runtime.go.
const (
	maxMessage        = 4096 // bytes from the end of the file
	maxMessageLog     = 2048 // bytes from the end of the log, where that takes its place
	maxMessageLines   = 80   // lines of it
	messageLogTimeout = 10 * time.Second

	reasonCannotRun = "ContainerCannotRun" // it left nothing, for it never ran
)

// Message returns the termination message of a container that has exited: what it left in its file or, if it asked for that
// and failed without one, at the end of its log.
func (d Dir) Message(ctx context.Context, c *cri.Container) string {
	message := tail{max: maxMessage}
	if path := d.messageFile(c.Name, c.Attempt); path != "" {
		if f, err := os.Open(path); err == nil {
			if info, err := f.Stat(); err == nil && info.Size() > maxMessage {
				_, _ = f.Seek(-maxMessage, io.SeekEnd)
			}
			_, _ = io.Copy(&message, io.LimitReader(f, maxMessage))
			_ = f.Close()
		}
	}
	policy := c.Annotations[podspec.AnnotationTerminationMessagePolicy]
	if len(message.data) > 0 || policy != string(corev1.TerminationMessageFallbackToLogsOnError) ||
		c.ExitCode == 0 || c.Reason == reasonCannotRun || c.LogPath == "" {
		return string(message.data)
	}
	message.max = maxMessageLog
	lines := int64(maxMessageLines)
	ctx, cancel := context.WithTimeout(ctx, messageLogTimeout)
	defer cancel()
	// What has been read before an error is better than nothing.
	_ = logs.Read(ctx, c.LogPath, &message, &message, logs.ReadOptions{TailLines: &lines})
	return string(message.data)
}

// tail keeps the last bytes of what is written to it.
type tail struct {
	max  int
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p[max(0, len(p)-t.max):]...)
	t.data = slices.Delete(t.data, 0, max(0, len(t.data)-t.max))
	return len(p), nil
}
