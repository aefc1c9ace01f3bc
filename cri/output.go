// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "context"

// maxOutputKey is the context key of the limit of [WithMaxOutput].
type maxOutputKey struct{}

// WithMaxOutput returns a context that limits the output of [Execer].ExecSync to this number of bytes. Beyond it, a runtime
// that receives the output as one message, such as package remote, returns an error. A runtime that reads a stream, such as
// package process, truncates stdout and stderr.
func WithMaxOutput(ctx context.Context, bytes int) context.Context {
	return context.WithValue(ctx, maxOutputKey{}, bytes)
}

// MaxOutput returns the limit that [WithMaxOutput] has set in ctx. ok is false if ctx has no limit.
func MaxOutput(ctx context.Context) (bytes int, ok bool) {
	bytes, ok = ctx.Value(maxOutputKey{}).(int)
	return bytes, ok
}
