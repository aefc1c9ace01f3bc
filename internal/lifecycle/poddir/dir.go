// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/rmtree"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Dir is the directory of one pod. The empty Dir means that the agent keeps no files: all methods do nothing.
type Dir string

// DirOf returns the directory of the pod with this UID below root. It returns the empty Dir if root is empty, or if uid is
// not a safe file name.
func DirOf(root, uid string) Dir {
	if root == "" || !IsFileName(uid) {
		return ""
	}
	return Dir(filepath.Join(root, uid))
}

// IsFileName reports whether name is safe as a single path element: it is not empty, does not start with a dot and contains
// no slash. Names from the runtime must be checked, because they may be malicious.
func IsFileName(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\x00")
}

// recordPath returns the path of the pod's record, a JSON file. It returns "" for the empty Dir.
func (d Dir) recordPath() string {
	if d == "" {
		return ""
	}
	return filepath.Join(string(d), recordName)
}

// WriteHostsFile writes the hosts file of pod and returns its path, or "" for the empty Dir. ips are the pod IPs. Like the
// kubelet, the agent calls it before it creates a container.
func (d Dir) WriteHostsFile(pod *corev1.Pod, ips []string, opts podspec.Options) (string, error) {
	if d == "" {
		return "", nil
	}
	var node []byte
	if pod.Spec.HostNetwork {
		var err error
		if node, err = os.ReadFile("/etc/hosts"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	content, err := podspec.HostsFile(pod, ips, node, opts)
	if err != nil {
		return "", err
	}
	root, err := d.openOrCreate()
	if err != nil {
		return "", err
	}
	defer root.Close()
	const name = "etc-hosts"
	return filepath.Join(string(d), name), replaceContent(root, name, content, 0o644)
}

// openOrCreate opens the pod directory and creates it if necessary.
func (d Dir) openOrCreate() (*os.Root, error) {
	if err := os.MkdirAll(string(d), 0o750); err != nil {
		return nil, err
	}
	return os.OpenRoot(string(d))
}

// messagePath returns the path, relative to d, of the termination message file for a container instance, or "".
func (d Dir) messagePath(container string, attempt uint32) string {
	if d == "" || !IsFileName(container) {
		return ""
	}
	return filepath.Join("containers", container, strconv.FormatUint(uint64(attempt), 10))
}

// CreateMessageFile creates an empty termination message file for an instance of the container, and returns its path. All
// users can write to the file, because the container may run as any user.
func (d Dir) CreateMessageFile(container string, attempt uint32) (string, error) {
	name := d.messagePath(container, attempt)
	if name == "" {
		return "", nil
	}
	root, err := d.openOrCreate()
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return "", err
	}
	return filepath.Join(string(d), name), replaceContent(root, name, nil, 0o666) // the container may run as any user
}

// Remove removes the pod directory. It returns an error if a mount remains below the directory, and does not remove the
// files in that mount.
func (d Dir) Remove() error {
	if d == "" {
		return nil
	}
	err := rmtree.Remove(string(d))
	if root := filepath.Dir(string(d)); hasSpares(root) {
		_ = createSpares(root) // uses the freed space; a failure does not concern this pod
	}
	return err
}
