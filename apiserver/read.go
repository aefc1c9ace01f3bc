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

// forbiddenRetryDelays returns the delays before the retries of a forbidden request.
func forbiddenRetryDelays() []time.Duration {
	// a node receives a pod a moment before the node authorizer permits access to the objects of the pod
	return []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}
}

// retryForbidden calls send, and repeats the call for about 1.5 s while it returns a Forbidden error.
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

// readObject sends a GET request for an object that a pod refers to. A missing object is an error that wraps
// [fs.ErrNotExist].
func readObject[T kubeapi.Object](ctx context.Context, client *kubeapi.Client, kind kubeapi.Kind[T], namespace, name string) (T, error) {
	o, err := retryForbidden(ctx, func(ctx context.Context) (T, error) { return kubeapi.In(client, kind, namespace).Get(ctx, name) })
	if apierrors.IsNotFound(err) {
		return o, notFoundError{err}
	}
	return o, markUnavailable(err)
}

// notFoundError is the error for an object that does not exist. It matches [fs.ErrNotExist].
type notFoundError struct{ error }

// Is reports whether target is [fs.ErrNotExist].
func (m notFoundError) Is(target error) bool { return target == fs.ErrNotExist }

// Unwrap returns the error of the API server.
func (m notFoundError) Unwrap() error { return m.error }

// isUnavailable reports whether err means that the API server is unreachable, fails or rejects the agent's credentials.
func isUnavailable(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonNotFound, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest:
		return false // an error about the object
	}
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotRunning) && !isReadBudgetError(err)
}

// markUnavailable wraps err in an unavailableError if the API server is unavailable. Other errors are returned unchanged.
func markUnavailable(err error) error {
	if isUnavailable(err) {
		return unavailableError{err}
	}
	return err
}

// unavailableError is the error of a read while the API server is unavailable.
type unavailableError struct{ error }

// Unanswered returns true: the API server has not answered the request. After such an error, package volume retries soon.
func (unavailableError) Unanswered() bool { return true }

// Unwrap returns the cause.
func (u unavailableError) Unwrap() error { return u.error }

// requestGroup merges concurrent requests for the same key into one.
type requestGroup[T any] struct {
	mu       sync.Mutex // guards the fields below
	inFlight map[string]*sharedRequest[T]
}

// sharedRequest is a request in flight, and its result once done is closed.
type sharedRequest[T any] struct {
	done     chan struct{}
	value    T
	err      error
	canceled bool // the context of the caller that sent it has ended
}

// doShared returns the result of send. Concurrent calls with an equal key share one call of send.
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
		if !request.canceled { // otherwise the context of the caller that sent it has ended
			return request.value, request.err
		}
	}
}

// joinRequest returns the request in flight with this key, or a new one, which its owner must send and pass to
// finishRequest.
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

// finishRequest wakes the callers that wait for the result of the request. The next caller with this key sends a new
// request.
func (f *requestGroup[T]) finishRequest(key string, request *sharedRequest[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.inFlight, key)
	close(request.done)
}
