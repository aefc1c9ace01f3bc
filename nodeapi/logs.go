// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/internal/loginstance"
)

// serveLogs writes the log of a container, and follows it where that is asked for.
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request, p params) {
	for _, part := range []struct{ name, missing string }{
		{"pod", "podID"}, {"container", "container name"}, {"namespace", "podNamespace"},
	} {
		if p[part.name] == "" {
			text(w, http.StatusBadRequest, fmt.Sprintf(`{"message": "Missing %s."}`, part.missing))
			return
		}
	}
	o, status, err := logOptions(r.URL.Query())
	if err != nil {
		text(w, status, err.Error())
		return
	}
	pod := s.findPod(p)
	switch {
	case pod == nil:
		text(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", p["pod"]))
	case containerSpec(pod, p["container"]) == nil:
		text(w, http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", p["container"], p["pod"]))
	case o.Stream != nil && *o.Stream != corev1.LogStreamAll && !s.o.SplitStreams:
		text(w, http.StatusBadRequest, fmt.Sprintf(
			"unable to return the given log stream: %q. Please enable PodLogsQuerySplitStreams feature gate in kubelet", *o.Stream))
	default:
		s.writeLogs(w, r, pod, p["container"], o)
	}
}

func (s *Server) writeLogs(w http.ResponseWriter, r *http.Request, pod *corev1.Pod, container string, o *corev1.PodLogOptions) {
	id, err := loginstance.Find(&pod.Status, pod.Name, container, o.Previous)
	if err != nil {
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	out := newLogWriter(w)
	defer out.close()
	// The client sees that it is connected before there is a line.
	w.WriteHeader(http.StatusOK)
	out.flush()
	if err := s.copyLogs(r.Context(), out, id, o); err != nil && r.Context().Err() == nil {
		_, _ = io.WriteString(out, err.Error()) // at the end of what was written, as the kubelet does: there is no other place
	}
}

func (s *Server) copyLogs(ctx context.Context, out *logWriter, id string, o *corev1.PodLogOptions) error {
	_, bare, found := strings.Cut(id, "://")
	if !found {
		bare = id
	}
	c, err := s.inspect(ctx, bare)
	if err != nil {
		s.o.Logger.Info("container of a log not found", "container", id, "error", err)
		return fmt.Errorf("unable to retrieve container logs for %s", id)
	}
	var stdout, stderr io.Writer = out, out
	if o.Stream != nil {
		switch *o.Stream {
		case corev1.LogStreamStdout:
			stderr = nil
		case corev1.LogStreamStderr:
			stdout = nil
		}
	}
	return logs.Read(ctx, c.LogPath, stdout, stderr, logs.ReadOptions{
		TailLines: o.TailLines, LimitBytes: o.LimitBytes, Since: since(o, time.Now()), Timestamps: o.Timestamps, Follow: o.Follow, Watcher: &s.logWatcher,
		IncludeRotated: !s.o.CurrentLogsOnly,
		Running: func(ctx context.Context) (bool, error) {
			c, err := s.inspect(ctx, bare)
			return c.State == cri.ContainerRunning, err
		},
	})
}

const (
	logBuffer  = 32 << 10
	logLatency = 5 * time.Millisecond
)

// logWriter gathers lines, and sends them when there are many or after logLatency: a flush for each line would cost more than reading it.
type logWriter struct {
	mu    sync.Mutex // guards what follows
	w     http.ResponseWriter
	buf   []byte
	timer *time.Timer // flushes; nil: nothing waits
	err   error       // of the client, who gets no more
}

func newLogWriter(w http.ResponseWriter) *logWriter {
	return &logWriter{w: w, buf: make([]byte, 0, logBuffer)}
}

// Write takes a line.
func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf)+len(p) > logBuffer {
		l.send(false)
	}
	if l.err == nil && len(p) >= logBuffer {
		_, l.err = l.w.Write(p)
		l.schedule()
	} else if l.err == nil {
		l.buf = append(l.buf, p...)
		l.schedule()
	}
	if l.err != nil {
		return 0, l.err
	}
	return len(p), nil
}

// schedule makes a timer that flushes, unless there is one. It is called with mu held.
func (l *logWriter) schedule() {
	if l.timer == nil {
		l.timer = time.AfterFunc(logLatency, l.flush)
	}
}

// flush sends what waits to the client.
func (l *logWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	l.send(true)
}

// send writes what waits, and flushes it. It is called with mu held.
func (l *logWriter) send(flush bool) {
	if l.err == nil && len(l.buf) > 0 {
		_, l.err = l.w.Write(l.buf)
	}
	l.buf = l.buf[:0]
	if l.err == nil && flush {
		l.err = http.NewResponseController(l.w).Flush()
	}
}

// close sends the rest. Nothing touches the response afterwards.
func (l *logWriter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.send(true)
	l.err = http.ErrHandlerTimeout
}
