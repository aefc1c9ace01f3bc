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

// ErrNoNetwork means that no configuration file has the network of pods. A network agent may write the file later.
var ErrNoNetwork = errors.New("no CNI network is configured")

// Error is the error of one CNI command on a network.
type Error struct {
	Op        string // the CNI command, such as "ADD"
	Network   string
	Interface string // empty for GC and STATUS
	Sandbox   string // empty for GC and STATUS
	Code      uint   // code of the plugin's CNI error, such as 11 for "try again later"; zero: none
	Err       error
}

// Error returns the text of the error: the command, the network, the interface, the sandbox and the cause.
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

// newError wraps err in an [*Error] with the command op, the network and the attachment. If err is nil, it returns nil.
func newError(op string, network *Network, attachment Attachment, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Network: network.Name, Interface: attachment.Interface, Sandbox: attachment.ContainerID, Err: err}
	if said, ok := errors.AsType[*types.Error](err); ok {
		e.Code = said.Code
	}
	return e
}

// FileError is the reason why a configuration file is skipped.
type FileError struct {
	File string // path of the file or the directory
	Err  error
}

// Error returns the path of the file and the cause.
func (e *FileError) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// stripPath removes the path from an error of package os, because the caller adds the path itself.
func stripPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}
