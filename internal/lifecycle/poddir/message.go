// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Limits of a termination message. Source: pkg/kubelet/container/runtime.go.
const (
	maxMessage        = 4096 // bytes from the end of the file
	maxMessageLog     = 2048 // bytes from the end of the log, if the log is used instead
	maxMessageLines   = 80   // lines from the end of the log
	messageLogTimeout = 10 * time.Second

	reasonCannotRun = "ContainerCannotRun" // the container never ran and has no log
)

// ReadMessage returns the termination message of an exited container, which is the content of its termination message file.
// If the file is empty and the policy is FallbackToLogsOnError, it returns the end of the log of a failed container.
func (d Dir) ReadMessage(ctx context.Context, container *cri.Container) string {
	message := tail{max: maxMessage}
	d.readMessage(container, &message)
	policy := container.Annotations[podspec.AnnotationTerminationMessagePolicy]
	if len(message.data) > 0 || policy != string(corev1.TerminationMessageFallbackToLogsOnError) ||
		container.ExitCode == 0 || container.Reason == reasonCannotRun || container.LogPath == "" {
		return string(message.data)
	}
	message.max = maxMessageLog
	lines := int64(maxMessageLines)
	ctx, cancel := context.WithTimeout(ctx, messageLogTimeout)
	defer cancel()
	if info, err := os.Lstat(container.LogPath); err != nil || !info.Mode().IsRegular() {
		return "" // a container with a mount of the logs can place a link to any file there
	}
	// Output read before an error is still useful.
	_ = logs.Read(ctx, container.LogPath, &message, &message, logs.ReadOptions{TailLines: &lines})
	return string(message.data)
}

// readMessage appends the end of the container's termination message file to message. It does nothing if the file is missing
// or not a regular file.
func (d Dir) readMessage(container *cri.Container, message *tail) {
	name := d.mountedMessagePath(container)
	if name == "" {
		name = d.messagePath(container.Name, container.Attempt)
	}
	if name == "" {
		return
	}
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return
	}
	defer root.Close()
	f, err := plainfile.Open(root, name, os.O_RDONLY)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxMessage {
		_, _ = f.Seek(-maxMessage, io.SeekEnd)
	}
	_, _ = io.Copy(message, io.LimitReader(f, maxMessage))
}

// mountedMessagePath returns the path, relative to d, of the file that is mounted at the container's termination message path, or "" if there is none in
// the directory of the container. A kubelet gives the file of each container instance a random name. Source: getTerminationMessage in
// pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (d Dir) mountedMessagePath(container *cri.Container) string {
	target := container.Annotations[podspec.AnnotationTerminationMessagePath]
	if d == "" || target == "" || !IsFileName(container.Name) {
		return ""
	}
	dir := filepath.Join("containers", container.Name)
	for i := range container.Mounts {
		m := &container.Mounts[i]
		// The root directory of the other agent may have another name, such as a symbolic link.
		parent, name := filepath.Split(m.HostPath)
		if path.Join("/", m.ContainerPath) == path.Join("/", target) && IsFileName(name) &&
			strings.HasSuffix(filepath.Clean(parent), filepath.Join("/", filepath.Base(string(d)), dir)) {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// tail is a writer that keeps the last max bytes.
type tail struct {
	max  int
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p[max(0, len(p)-t.max):]...)
	t.data = slices.Delete(t.data, 0, max(0, len(t.data)-t.max))
	return len(p), nil
}
