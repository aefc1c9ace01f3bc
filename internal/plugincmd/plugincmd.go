// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugincmd runs the executables of others that answer on their standard output, such as plugins: in a process group
// that ends with them, and with an output that is bounded.
package plugincmd

import "fmt"

// Output holds so much of what is written to it and no more.
type Output struct {
	Held []byte
	Max  int
	Drop bool // what is too much is dropped; else it is an error, which closes the output and so ends the plugin
	Over bool // there was too much, and that was an error
}

// Write keeps what there is room for.
func (o *Output) Write(p []byte) (int, error) {
	room := o.Max - len(o.Held)
	if len(p) > room && !o.Drop {
		o.Over = true
		return 0, fmt.Errorf("more than %d bytes", o.Max)
	}
	o.Held = append(o.Held, p[:min(len(p), room)]...)
	return len(p), nil
}
