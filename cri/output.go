// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "context"

// maxOutputKey is the key of the bound of [WithMaxOutput] in a context.
type maxOutputKey struct{}

// WithMaxOutput returns a context for [Execer].ExecSync whose caller has memory for that many bytes of output. A runtime that
// would have to read all of a longer output at once, as package remote, returns an error instead. A runtime that reads the output as it
// comes, as package process, keeps the first bytes of each stream.
func WithMaxOutput(ctx context.Context, bytes int) context.Context {
	return context.WithValue(ctx, maxOutputKey{}, bytes)
}

// MaxOutput returns the bound of [WithMaxOutput], and whether there is one.
func MaxOutput(ctx context.Context) (bytes int, ok bool) {
	bytes, ok = ctx.Value(maxOutputKey{}).(int)
	return bytes, ok
}
