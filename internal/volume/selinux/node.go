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

// Node is what is known of SELinux on a node. The zero value is one without.
type Node struct {
	Enabled bool
	// File is the label that files of containers have by default, without a level of their own; empty: there is none, and no
	// volume gets a label.
	File string
}

// maxFile is how much of a file of the policy is read.
const maxFile = 64 << 10

// Read returns what the files of a node say, whose root is given: /sys, /proc and /etc are read. Where SELinux is not enabled that
// is the zero value.
func Read(root fs.FS) (Node, error) {
	if _, err := fs.Stat(root, "sys/fs/selinux/enforce"); err != nil {
		return Node{}, notexist.Ignore(err)
	}
	current, err := read(root, "proc/self/attr/current")
	if err != nil {
		return Node{}, notexist.Ignore(err)
	}
	if own := strings.TrimRight(string(current), "\n\x00"); own == "" || own == "kernel" {
		return Node{}, nil // there is no policy
	}
	labels, err := contexts(root)
	if err != nil {
		return Node{}, fmt.Errorf("selinux: labels of containers: %w", err)
	}
	if labels["process"] == "" {
		return Node{Enabled: true}, nil
	}
	return Node{Enabled: true, File: labels["file"]}, nil
}

// contexts returns the labels of containers by their names. A node may have none.
func contexts(root fs.FS) (map[string]string, error) {
	data, err := read(root, "usr/share/containers/selinux/contexts")
	if errors.Is(err, fs.ErrNotExist) {
		policy, err := setting(root, "etc/selinux/config", "SELINUXTYPE")
		if err != nil {
			return nil, notexist.Ignore(err)
		}
		if policy == "" {
			policy = "targeted"
		}
		if !fs.ValidPath(policy) || path.Base(policy) != policy || policy == "." {
			return nil, fmt.Errorf("SELINUXTYPE %.64q is not the name of a directory", policy)
		}
		if data, err = read(root, path.Join("etc/selinux", policy, "contexts/lxc_contexts")); err != nil {
			return nil, notexist.Ignore(err)
		}
		return parse(data), nil
	}
	if err != nil {
		return nil, err
	}
	return parse(data), nil
}

func setting(root fs.FS, name, key string) (string, error) {
	data, err := read(root, name)
	if err != nil {
		return "", err
	}
	return parse(data)[key], nil
}

// parse reads lines of the form key = "value".
func parse(data []byte) map[string]string {
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

// read returns a file that is not too large.
func read(root fs.FS, name string) ([]byte, error) {
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
