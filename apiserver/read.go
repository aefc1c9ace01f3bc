// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// bindingWaits are the waits after a refusal: an API server allows a node what its pods refer to a moment after it has told the
// node of the pod.
func bindingWaits() []time.Duration {
	return []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}
}

// allowed asks again for a moment when it is refused.
func allowed[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	o, err := ask(ctx)
	for _, d := range bindingWaits() {
		if !apierrors.IsForbidden(err) || sleep.For(ctx, d) != nil {
			return o, err
		}
		o, err = ask(ctx)
	}
	return o, err
}

// read reads an object that a pod of this node refers to.
func read[T kubeapi.Object](ctx context.Context, c *kubeapi.Client, k kubeapi.Kind[T], namespace, name string) (T, error) {
	o, err := allowed(ctx, func(ctx context.Context) (T, error) { return kubeapi.In(c, k, namespace).Get(ctx, name) })
	if apierrors.IsNotFound(err) {
		return o, missing{err}
	}
	return o, judged(err)
}

// missing is the error of an object that does not exist.
type missing struct{ error }

// Is makes it one that wraps [fs.ErrNotExist].
func (m missing) Is(target error) bool { return target == fs.ErrNotExist }

// Unwrap returns the API server's error.
func (m missing) Unwrap() error { return m.error }

// away reports whether an error says that nobody can be asked, as with a certificate that has expired, and not something of the
// object.
func away(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonNotFound, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest:
		return false
	}
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotRunning) && !isTooMany(err)
}

// judged marks an error that says that nobody can be asked.
func judged(err error) error {
	if away(err) {
		return unanswered{err}
	}
	return err
}

// unanswered is the error of what nobody could be asked for.
type unanswered struct{ error }

// Unanswered has package volume ask again soon.
func (unanswered) Unanswered() bool { return true }

// Unwrap returns what went wrong.
func (u unanswered) Unwrap() error { return u.error }

// flights makes one request of several at the same time for the same object.
type flights[T any] struct {
	mu  sync.Mutex // guards what follows
	all map[string]*flight[T]
}

type flight[T any] struct {
	landed    chan struct{}
	value     T
	err       error
	abandoned bool // by the end of the context of who asked
}

// do calls ask, or waits for another's call that is under way. The end of another's context is no answer.
func (f *flights[T]) do(ctx context.Context, key string, ask func(context.Context) (T, error)) (T, error) {
	for {
		one, mine := f.join(key)
		if mine {
			one.value, one.err = ask(ctx)
			one.abandoned = ctx.Err() != nil
			f.land(key, one)
			return one.value, one.err
		}
		select {
		case <-one.landed:
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
		if !one.abandoned {
			return one.value, one.err
		}
	}
}

func (f *flights[T]) join(key string) (one *flight[T], mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one, ok := f.all[key]; ok {
		return one, false
	}
	if f.all == nil {
		f.all = map[string]*flight[T]{}
	}
	one = &flight[T]{landed: make(chan struct{})}
	f.all[key] = one
	return one, true
}

func (f *flights[T]) land(key string, one *flight[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, key)
	close(one.landed)
}
