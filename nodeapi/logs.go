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

// serveLogs responds with the log of a container. If the query has follow=true, it continues with new lines until the container
// exits.
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request, pathParams params) {
	for _, part := range []struct{ name, missing string }{
		{"pod", "podID"}, {"container", "container name"}, {"namespace", "podNamespace"},
	} {
		if pathParams[part.name] == "" {
			writeText(w, http.StatusBadRequest, fmt.Sprintf(`{"message": "Missing %s."}`, part.missing))
			return
		}
	}
	o, status, err := parseLogOptions(r.URL.Query())
	if err != nil {
		writeText(w, status, err.Error())
		return
	}
	pod := s.findPod(pathParams)
	switch {
	case pod == nil:
		writeText(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", pathParams["pod"]))
	case containerSpec(pod, pathParams["container"]) == nil:
		writeText(w, http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", pathParams["container"], pathParams["pod"]))
	case o.Stream != nil && *o.Stream != corev1.LogStreamAll && !s.o.SplitStreams:
		writeText(w, http.StatusBadRequest, fmt.Sprintf(
			"unable to return the given log stream: %q. Please enable PodLogsQuerySplitStreams feature gate in kubelet", *o.Stream))
	default:
		s.writeLogs(w, r, pod, pathParams["container"], o)
	}
}

func (s *Server) writeLogs(w http.ResponseWriter, r *http.Request, pod *corev1.Pod, container string, opts *corev1.PodLogOptions) {
	id, err := loginstance.Find(&pod.Status, pod.Name, container, opts.Previous)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	out := newLogWriter(w)
	defer out.close()
	// The client receives the headers before the first line.
	w.WriteHeader(http.StatusOK)
	out.flushBuffer()
	if err := s.copyLogs(r.Context(), out, id, opts); err != nil && r.Context().Err() == nil {
		_, _ = io.WriteString(out, err.Error()) // appended to the log, as in the kubelet: the status is already sent
	}
}

func (s *Server) copyLogs(ctx context.Context, out *logWriter, id string, opts *corev1.PodLogOptions) error {
	_, bare, found := strings.Cut(id, "://")
	if !found {
		bare = id
	}
	c, err := s.containerStatus(ctx, bare)
	if err != nil {
		s.o.Logger.Info("container of a log not found", "container", id, "error", err)
		return fmt.Errorf("unable to retrieve container logs for %s", id)
	}
	var stdout, stderr io.Writer = out, out
	if opts.Stream != nil {
		switch *opts.Stream {
		case corev1.LogStreamStdout:
			stderr = nil
		case corev1.LogStreamStderr:
			stdout = nil
		}
	}
	return logs.Read(ctx, c.LogPath, stdout, stderr, logs.ReadOptions{
		TailLines: opts.TailLines, LimitBytes: opts.LimitBytes, Since: sinceTime(opts, time.Now()), Timestamps: opts.Timestamps, Follow: opts.Follow, Watcher: &s.logWatcher,
		IncludeRotated: !s.o.CurrentLogsOnly,
		Running: func(ctx context.Context) (bool, error) {
			c, err := s.containerStatus(ctx, bare)
			return c.State == cri.ContainerRunning, err
		},
	})
}

const (
	logBuffer  = 32 << 10
	logLatency = 5 * time.Millisecond
)

// logWriter buffers log lines. It sends them when the buffer is full, and at most logLatency after they were written. Sending
// each line alone would cost more than reading it.
type logWriter struct {
	mu    sync.Mutex // guards the fields below
	w     http.ResponseWriter
	buf   []byte
	timer *time.Timer // flushes the buffer; nil: it is empty
	err   error       // of writing to the client; later writes fail
}

func newLogWriter(w http.ResponseWriter) *logWriter {
	return &logWriter{w: w, buf: make([]byte, 0, logBuffer)}
}

// Write buffers a line.
func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf)+len(p) > logBuffer {
		l.writeBuffer(false)
	}
	if l.err == nil && len(p) >= logBuffer {
		_, l.err = l.w.Write(p)
		l.scheduleFlush()
	} else if l.err == nil {
		l.buf = append(l.buf, p...)
		l.scheduleFlush()
	}
	if l.err != nil {
		return 0, l.err
	}
	return len(p), nil
}

// scheduleFlush makes a timer flush the buffer after logLatency. If the timer is running already, it does nothing. The
// caller holds mu.
func (l *logWriter) scheduleFlush() {
	if l.timer == nil {
		l.timer = time.AfterFunc(logLatency, l.flushBuffer)
	}
}

// flushBuffer sends the buffered lines to the client.
func (l *logWriter) flushBuffer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	l.writeBuffer(true)
}

// writeBuffer writes the buffered lines to the response. If flush is true, it also flushes the response to the client. The
// caller holds mu.
func (l *logWriter) writeBuffer(flush bool) {
	if l.err == nil && len(l.buf) > 0 {
		_, l.err = l.w.Write(l.buf)
	}
	l.buf = l.buf[:0]
	if l.err == nil && flush {
		l.err = http.NewResponseController(l.w).Flush()
	}
}

// close sends the buffered lines. Later calls of Write fail, because the response must not be used after its handler has
// returned.
func (l *logWriter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.writeBuffer(true)
	l.err = http.ErrHandlerTimeout
}
