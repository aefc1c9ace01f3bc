// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugincmd runs plugin executables that return their result on standard output: in a process group that is killed with
// them, and with limited output.
package plugincmd

import "fmt"

// Output is an io.Writer that keeps at most Max bytes.
type Output struct {
	Text     []byte
	Max      int
	Drop     bool // further bytes are dropped; otherwise they are an error, which closes the output and so ends the plugin
	Exceeded bool // more than Max bytes were written, and Drop is not set
}

// Write appends p to o.Text, up to o.Max bytes. If p does not fit, Write drops the excess bytes if o.Drop is set. Without
// o.Drop it appends nothing and returns an error.
func (o *Output) Write(p []byte) (int, error) {
	room := o.Max - len(o.Text)
	if len(p) > room && !o.Drop {
		o.Exceeded = true
		return 0, fmt.Errorf("more than %d bytes", o.Max)
	}
	o.Text = append(o.Text, p[:min(len(p), room)]...)
	return len(p), nil
}
