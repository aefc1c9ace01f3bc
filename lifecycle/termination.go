// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

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

// What a container may leave as its last words. Source: pkg/kubelet/container/runtime.go.
const (
	maxMessage        = 4096      // bytes from the end of the file
	maxMessageLog     = 2048      // bytes from the end of the log, where that takes its place
	maxMessageLines   = 80        // lines of it
	maxMessagesOfPod  = 12 * 1024 // bytes, in equal parts for all containers
	messageLogTimeout = 10 * time.Second

	reasonCannotRun = "ContainerCannotRun" // it left nothing, for it never ran
)

// lastWords returns the termination messages of the containers that have ended, by ID. Each is read once.
func (w *worker) lastWords(ctx context.Context, observed cri.Pod) map[string]string {
	if w.messages == nil {
		w.messages = map[string]string{}
	}
	for id := range w.messages {
		if !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id }) {
			delete(w.messages, id)
		}
	}
	for i := range observed.Containers {
		c := &observed.Containers[i]
		if _, known := w.messages[c.ID]; !known && c.State == cri.ContainerExited {
			w.messages[c.ID] = lastWords(ctx, w.files(), c)
		}
	}
	return w.messages
}

// lastWords reads what a container left in its file or, if it asked for that and failed without a word, in its log.
func lastWords(ctx context.Context, files podFiles, c *cri.Container) string {
	words := tail{max: maxMessage}
	if path := files.lastWords(c.Name, c.Attempt); path != "" {
		if f, err := os.Open(path); err == nil {
			if info, err := f.Stat(); err == nil && info.Size() > maxMessage {
				_, _ = f.Seek(-maxMessage, io.SeekEnd)
			}
			_, _ = io.Copy(&words, io.LimitReader(f, maxMessage))
			_ = f.Close()
		}
	}
	policy := c.Annotations[podspec.AnnotationTerminationMessagePolicy]
	if len(words.data) > 0 || policy != string(corev1.TerminationMessageFallbackToLogsOnError) ||
		c.ExitCode == 0 || c.Reason == reasonCannotRun || c.LogPath == "" {
		return string(words.data)
	}
	words.max = maxMessageLog
	lines := int64(maxMessageLines)
	ctx, cancel := context.WithTimeout(ctx, messageLogTimeout)
	defer cancel()
	// What has been read before an error is better than nothing.
	_ = logs.Read(ctx, c.LogPath, &words, &words, logs.ReadOptions{TailLines: &lines})
	return string(words.data)
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

// cutMessages keeps the messages of all containers of a pod together within their limit. Source: normalizeStatus in
// pkg/kubelet/status/status_manager.go.
func cutMessages(st *corev1.PodStatus) {
	lists := [...][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses}
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	cut := func(t *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
		if t == nil || len(t.Message) <= maxMessagesOfPod/n {
			return t
		}
		short := *t
		short.Message = t.Message[:maxMessagesOfPod/n]
		return &short
	}
	for _, list := range lists {
		for i := range list {
			list[i].State.Terminated = cut(list[i].State.Terminated)
			list[i].LastTerminationState.Terminated = cut(list[i].LastTerminationState.Terminated)
		}
	}
}
