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
func forbiddenRetryDelays() []time.Duration {
	return []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}
}

// allowed asks again for a moment when it is refused.
func retryForbidden[T any](ctx context.Context, send func(context.Context) (T, error)) (T, error) {
	o, err := send(ctx)
	for _, d := range forbiddenRetryDelays() {
		if !apierrors.IsForbidden(err) || sleep.For(ctx, d) != nil {
			return o, err
		}
		o, err = send(ctx)
	}
	return o, err
}

// read reads an object that a pod of this node refers to.
func readObject[T kubeapi.Object](ctx context.Context, c *kubeapi.Client, k kubeapi.Kind[T], namespace, name string) (T, error) {
	o, err := retryForbidden(ctx, func(ctx context.Context) (T, error) { return kubeapi.In(c, k, namespace).Get(ctx, name) })
	if apierrors.IsNotFound(err) {
		return o, notFoundError{err}
	}
	return o, markUnavailable(err)
}

// missing is the error of an object that does not exist.
type notFoundError struct{ error }

// Is makes it one that wraps [fs.ErrNotExist].
func (m notFoundError) Is(target error) bool { return target == fs.ErrNotExist }

// Unwrap returns the API server's error.
func (m notFoundError) Unwrap() error { return m.error }

// away reports whether an error says that nobody can be asked, as with a certificate that has expired, and not something of the
// object.
func isUnavailable(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonNotFound, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest:
		return false
	}
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotRunning) && !isReadBudgetError(err)
}

// judged marks an error that says that nobody can be asked.
func markUnavailable(err error) error {
	if isUnavailable(err) {
		return unavailableError{err}
	}
	return err
}

// unanswered is the error of what nobody could be asked for.
type unavailableError struct{ error }

// Unanswered has package volume ask again soon.
func (unavailableError) Unanswered() bool { return true }

// Unwrap returns what went wrong.
func (u unavailableError) Unwrap() error { return u.error }

// flights makes one request of several at the same time for the same object.
type requestGroup[T any] struct {
	mu       sync.Mutex // guards what follows
	inFlight map[string]*sharedRequest[T]
}

type sharedRequest[T any] struct {
	done     chan struct{}
	value    T
	err      error
	canceled bool // by the end of the context of who asked
}

// do calls ask, or waits for another's call that is under way. The end of another's context is no answer.
func (f *requestGroup[T]) doShared(ctx context.Context, key string, send func(context.Context) (T, error)) (T, error) {
	for {
		request, isOwner := f.joinRequest(key)
		if isOwner {
			request.value, request.err = send(ctx)
			request.canceled = ctx.Err() != nil
			f.finishRequest(key, request)
			return request.value, request.err
		}
		select {
		case <-request.done:
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
		if !request.canceled {
			return request.value, request.err
		}
	}
}

func (f *requestGroup[T]) joinRequest(key string) (request *sharedRequest[T], isOwner bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if request, ok := f.inFlight[key]; ok {
		return request, false
	}
	if f.inFlight == nil {
		f.inFlight = map[string]*sharedRequest[T]{}
	}
	request = &sharedRequest[T]{done: make(chan struct{})}
	f.inFlight[key] = request
	return request, true
}

func (f *requestGroup[T]) finishRequest(key string, request *sharedRequest[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.inFlight, key)
	close(request.done)
}
