// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "context"

// maxOutputKey is the context key of the limit of [WithMaxOutput].
type maxOutputKey struct{}

// WithMaxOutput returns a context that limits the output of [Execer].ExecSync to bytes. A runtime that receives the whole output
// in one message, such as package remote, returns an error if it is longer. A runtime that reads the output as a stream, such as
// package process, truncates each stream.
func WithMaxOutput(ctx context.Context, bytes int) context.Context {
	return context.WithValue(ctx, maxOutputKey{}, bytes)
}

// MaxOutput returns the limit set by [WithMaxOutput]. ok is false if ctx has none.
func MaxOutput(ctx context.Context) (bytes int, ok bool) {
	bytes, ok = ctx.Value(maxOutputKey{}).(int)
	return bytes, ok
}
