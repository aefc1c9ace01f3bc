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

// Dir is the directory of one pod. The empty one is of an agent that keeps none: it has no files.
type Dir string

// Of returns the directory of a pod below a root, or the empty one without a root or where the UID is no name of a file.
func Of(root, uid string) Dir {
	if root == "" || !PlainName(uid) {
		return ""
	}
	return Dir(filepath.Join(root, uid))
}

// PlainName reports whether a name can be part of a path without leading elsewhere. Those of an orphaned pod come from the
// runtime, where anybody may have written them.
func PlainName(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\x00")
}

// record returns the path of the record of the pod, or nothing.
func (d Dir) record() string {
	if d == "" {
		return ""
	}
	return filepath.Join(string(d), recordName)
}

// Hosts writes the hosts file of a pod and returns its path. As in the kubelet it is written anew for each container.
func (d Dir) Hosts(pod *corev1.Pod, ips []string, o podspec.Options) (string, error) {
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
	content, err := podspec.HostsFile(pod, ips, node, o)
	if err != nil {
		return "", err
	}
	root, err := d.make()
	if err != nil {
		return "", err
	}
	defer root.Close()
	const name = "etc-hosts"
	return filepath.Join(string(d), name), replaceContent(root, name, content, 0o644)
}

// make makes the directory, if it is not there, and opens it.
func (d Dir) make() (*os.Root, error) {
	if err := os.MkdirAll(string(d), 0o750); err != nil {
		return nil, err
	}
	return os.OpenRoot(string(d))
}

// messageFile returns the path of the file for the termination message of a container instance, below the directory.
func (d Dir) messageFile(container string, attempt uint32) string {
	if d == "" || !PlainName(container) {
		return ""
	}
	return filepath.Join("containers", container, strconv.FormatUint(uint64(attempt), 10))
}

// MakeMessageFile makes the file for the termination message of a container instance, empty and for anybody to write, and
// returns its path.
func (d Dir) MakeMessageFile(container string, attempt uint32) (string, error) {
	name := d.messageFile(container, attempt)
	if name == "" {
		return "", nil
	}
	root, err := d.make()
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return "", err
	}
	return filepath.Join(string(d), name), replaceContent(root, name, nil, 0o666) // whatever the user of the container
}

// Remove removes all of it but what is mounted there, which is an error.
func (d Dir) Remove() error {
	if d == "" {
		return nil
	}
	err := rmtree.Remove(string(d))
	if root := filepath.Dir(string(d)); spareKept(root) {
		_ = fillSpare(root) // from the room that there is now; less of it is no error of this pod
	}
	return err
}
