// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// ErrNoNetwork says that no configuration file has the network that pods are to be attached to. It may come later: the
// agent of the network writes it.
var ErrNoNetwork = errors.New("no CNI network is configured")

// Error is the error of one call of a network's plugins.
type Error struct {
	Op        string // the CNI command, such as "ADD"
	Network   string
	Interface string // empty for GC and STATUS
	Sandbox   string // empty for GC and STATUS
	Code      uint   // of the plugin's own error, such as 11 for "try again later"; zero where there is none
	Err       error
}

// Error returns what was done, to what, and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CNI %s of network %q", e.Op, e.Network)
	if e.Sandbox != "" {
		fmt.Fprintf(&b, ", interface %s of sandbox %s", e.Interface, e.Sandbox)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// newError names a call that went wrong; nil is nil.
func newError(op string, n *Network, a Attachment, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Network: n.Name, Interface: a.Interface, Sandbox: a.ContainerID, Err: err}
	if said, ok := errors.AsType[*types.Error](err); ok {
		e.Code = said.Code
	}
	return e
}

// FileError says what is wrong with a configuration file.
type FileError struct {
	File string // its path, or that of the directory
	Err  error
}

// Error returns the path and the cause.
func (e *FileError) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// cause strips the path from an error of package os, as it stands before it anyway.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}
