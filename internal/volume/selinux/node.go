// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package selinux

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/seed81659283/nodeagent/internal/notexist"
)

// Node is the state of SELinux on a node. The zero value is a node without SELinux.
type Node struct {
	Enabled bool
	// DefaultFileLabel is the default label of the files of containers, without a level. Empty: no volume is mounted with a
	// label.
	DefaultFileLabel string
}

// maxFile is the maximum number of bytes that are read of a policy file.
const maxFile = 64 << 10

// ReadNode reads whether SELinux is enabled on a node, and the default label of container files. root is the node's root file
// system; ReadNode reads files below its directories /sys, /proc, /etc and /usr. It returns the zero value for a node without
// SELinux.
func ReadNode(root fs.FS) (Node, error) {
	if _, err := fs.Stat(root, "sys/fs/selinux/enforce"); err != nil {
		return Node{}, notexist.Ignore(err)
	}
	current, err := readFile(root, "proc/self/attr/current")
	if err != nil {
		return Node{}, notexist.Ignore(err)
	}
	if own := strings.TrimRight(string(current), "\n\x00"); own == "" || own == "kernel" {
		return Node{}, nil // no policy is loaded
	}
	labels, err := readContexts(root)
	if err != nil {
		return Node{}, fmt.Errorf("selinux: labels of containers: %w", err)
	}
	if labels["process"] == "" {
		return Node{Enabled: true}, nil
	}
	return Node{Enabled: true, DefaultFileLabel: labels["file"]}, nil
}

// readContexts returns the default labels, "process" and "file", of containers in the SELinux policy, or nil.
func readContexts(root fs.FS) (map[string]string, error) {
	data, err := readFile(root, "usr/share/containers/selinux/contexts")
	if errors.Is(err, fs.ErrNotExist) {
		policy, err := readSetting(root, "etc/selinux/config", "SELINUXTYPE")
		if err != nil {
			return nil, notexist.Ignore(err)
		}
		if policy == "" {
			policy = "targeted"
		}
		if !fs.ValidPath(policy) || path.Base(policy) != policy || policy == "." {
			return nil, fmt.Errorf("SELINUXTYPE %.64q is not the name of a directory", policy)
		}
		if data, err = readFile(root, path.Join("etc/selinux", policy, "contexts/lxc_contexts")); err != nil {
			return nil, notexist.Ignore(err)
		}
		return parseSettings(data), nil
	}
	if err != nil {
		return nil, err
	}
	return parseSettings(data), nil
}

func readSetting(root fs.FS, name, key string) (string, error) {
	data, err := readFile(root, name)
	if err != nil {
		return "", err
	}
	return parseSettings(data)[key], nil
}

// parseSettings parses lines of the form key = "value".
func parseSettings(data []byte) map[string]string {
	values := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxFile+1)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok {
			values[strings.TrimSpace(key)] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return values
}

// readFile returns the content of the file with this name. It returns an error if the file is larger than maxFile.
func readFile(root fs.FS, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: more than %d bytes", name, maxFile)
	}
	return data, err
}
