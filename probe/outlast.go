// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"time"
)

// outlastTime is how long after the end of Run what probers have left behind may go on: a runtime that counts the
// timeout of a command in whole seconds has ended it by then.
const detachTimeout = time.Second

// outlastKey is the key of the function behind [Outlast] in the context of a probe.
type detachKey struct{}

// Outlast returns a context for a call that a [Prober] leaves behind when its own context ends, because the call must
// not be given up then, and a function that the prober calls once when that call has returned. It is called during
// Probe, with the context of the probe, whose values the new one has.
//
// In a [Set] the context ends a second after that of Run, and Run waits for the function to be called. Elsewhere it
// never ends.
func DetachContext(ctx context.Context) (call context.Context, ended func()) {
	if outlast, ok := ctx.Value(detachKey{}).(func(context.Context) (context.Context, func())); ok {
		return outlast(ctx)
	}
	return context.WithoutCancel(ctx), func() {}
}

// letOutlast returns the context of Run with what [Outlast] wants of it.
func (l *loop) withDetachContext(ctx context.Context) context.Context {
	run := ctx
	return context.WithValue(ctx, detachKey{}, func(ctx context.Context) (context.Context, func()) {
		l.wg.Add(1)
		call, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(run, func() {
			timer := time.AfterFunc(detachTimeout, cancel)
			context.AfterFunc(call, func() { timer.Stop() })
		})
		return call, func() {
			stop()
			cancel()
			l.wg.Done()
		}
	})
}
