// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	defaultRelist      = time.Hour
	defaultMaxObjects  = 100_000
	minWatch           = 10 * time.Minute // lifetime of a watch, times a factor between 1 and 2; the kubelet's is half of that
	pageSize           = 500
	failedRelistPeriod = time.Minute      // between a failed periodic list and the next list; the watch continues
	stableWatch        = time.Minute      // a watch that lasts this long resets the back-off
	minWatchGap        = time.Second      // least time between two watch requests
	firstRetry         = time.Second      // delay after the first failed list
	maxRetry           = 15 * time.Second // longest delay after failed lists, times a factor between 1 and 2
)

func (o TableOptions[T, V]) withDefaults() TableOptions[T, V] {
	if whole, ok := any(func(object T) T { return object }).(func(T) V); ok && o.Transform == nil {
		o.Transform = whole
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	o.Relist, o.Retry, o.MaxObjects = orElse(o.Relist, defaultRelist), orElse(o.Retry, firstRetry), orElse(o.MaxObjects, defaultMaxObjects)
	return o
}

// reflection lists and watches the objects of one table. The goroutine of Table.Run owns it.
type reflection[T Object, V any] struct {
	table      *Table[T, V]
	version    string    // resource version of the table; empty: unknown
	lastWatch  time.Time // start of the last watch request
	watchError error     // error of the last watch request, which was reported; nil: none
	paging     paging
}

// runLoop lists the objects and watches them for about TableOptions.Relist, and repeats this until ctx ends.
func (r *reflection[T, V]) runLoop(ctx context.Context) {
	policy := backoff.Policy{First: r.table.options.Retry, Max: maxRetry}
	from, failures := "", 0
	for ctx.Err() == nil {
		period := r.addJitter(r.table.options.Relist, 1.25)
		if err := r.listAll(ctx, from); err != nil {
			if ctx.Err() != nil {
				return
			}
			r.table.recordFailure(err)
			failures++
			switch {
			case isVersionLost(err) && from != "":
				from, r.version = "", ""
				continue
			case from == "" && r.version != "": // a failed periodic list: the table is as current as before
				period = r.addJitter(failedRelistPeriod, 1.25)
			default:
				if r.waitAfterError(ctx, err, policy.After(failures)) != nil {
					return
				}
				continue
			}
		}
		if count, _ := r.table.Omitted(); count > 0 {
			period /= 4 // deleted objects make room for omitted ones
		}
		begin := time.Now()
		// After a complete period the next list is read from etcd. After a shorter watch it may come from the API
		// server's memory.
		from = r.watchFor(ctx, period)
		if lasted := time.Since(begin); lasted >= min(stableWatch, period) {
			failures = 0
			continue
		}
		if failures++; sleep.For(ctx, r.addJitter(policy.After(failures), 2)) != nil {
			return
		}
	}
}

// waitAfterError waits for the given time with jitter, or for a longer Retry-After delay in err.
func (r *reflection[T, V]) waitAfterError(ctx context.Context, err error, wait time.Duration) error {
	if asked, ok := RetryAfter(err); ok && asked > wait {
		wait = asked
	}
	return sleep.For(ctx, r.addJitter(wait, 2))
}

// addJitter multiplies d by a random factor between 1 and high.
func (r *reflection[T, V]) addJitter(d time.Duration, high float64) time.Duration {
	return backoff.Jitter(d, 1, high, r.table.options.Rand())
}

// listAll replaces the rows of the table by a complete list, at least as new as version from. If from is empty, it reads the
// newest version.
func (r *reflection[T, V]) listAll(ctx context.Context, from string) error {
	o := metav1.ListOptions{
		LabelSelector: r.table.options.LabelSelector, FieldSelector: r.table.options.FieldSelector, ResourceVersion: from,
	}
	list := make(rows[V], 0, r.table.Len())
	var omitted omission[V]
	for {
		// with a limit, the API server would return exactly the version from
		if from == "" || o.Continue != "" {
			o.Limit = r.paging.nextSize()
		}
		page, kept, err := r.nextPage(ctx, &o)
		if err != nil {
			return err
		}
		list = append(list, kept...)
		for _, object := range page.Items {
			row, _ := r.table.rowOf(object)
			list = append(list, row)
		}
		if len(list) > r.table.options.MaxObjects {
			if r.table.options.Compare == nil {
				return r.table.tooManyError()
			}
			list = r.table.omitLeastImportant(list, &omitted)
		}
		if page.Continue == "" || omitted.count >= maxOmitted*r.table.options.MaxObjects {
			r.version = page.ResourceVersion
			break
		}
		o.Continue, o.ResourceVersion = page.Continue, ""
	}
	first := !r.table.Synced()
	changed := r.table.replaceAll(list.sortRows(), omitted, time.Now())
	if omitted.count > 0 && r.table.options.Failed != nil {
		r.table.options.Failed(r.table.omissionError(omitted))
	}
	if r.table.options.Changed != nil && (first || len(changed) > 0) {
		r.table.options.Changed(changed...)
	}
	return nil
}

// watchFor applies watch events to the table for at most the given period. It returns the minimum resource version of the
// next list.
func (r *reflection[T, V]) watchFor(ctx context.Context, period time.Duration) (from string) {
	round, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	log := r.table.resource.client.log.V(1) // the end of a watch is no error; the table reports failures
	reflector := cache.NewReflectorWithOptions(&reflectorSource[T, V]{reflection: r, ctx: round}, r.table.resource.kind.newObject(), &reflectorSink[T, V]{reflection: r}, cache.ReflectorOptions{
		Name: r.table.resource.kind.resource, Logger: &log, MinWatchTimeout: minWatch,
		Backoff: &wait.Backoff{Duration: firstRetry, Cap: maxRetry, Steps: 10, Factor: 2, Jitter: 1},
	})
	r.watchError = nil
	err := reflector.ListAndWatchWithContext(logr.NewContext(round, log))
	if err != nil && ctx.Err() == nil && !errors.Is(err, r.watchError) {
		r.table.recordFailure(err)
	}
	if isVersionLost(err) {
		r.version = ""
	}
	if round.Err() != nil {
		// The next list must be read from etcd, also if the API server has lost the resource version.
		return ""
	}
	return r.version
}

// isVersionLost reports whether err means that the API server does not have the requested resource version.
func isVersionLost(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// reflectorSource is the ListerWatcher of the reflector. Its list has no objects, only the resource version of
// the table, at which the reflector starts to watch. The objects were listed by reflection, which controls pages and back-off.
type reflectorSource[T Object, V any] struct {
	reflection *reflection[T, V]
	ctx        context.Context // context of the watch period, for methods without a context
}

// IsWatchListSemanticsUnSupported returns true, so that the reflector lists objects with list requests instead of a watch.
func (*reflectorSource[T, V]) IsWatchListSemanticsUnSupported() bool { return true }

func (s *reflectorSource[T, V]) List(opts metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(s.ctx, opts)
}

func (s *reflectorSource[T, V]) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(s.ctx, opts)
}

func (s *reflectorSource[T, V]) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: s.reflection.version}}, nil
}

func (s *reflectorSource[T, V]) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if since := time.Since(s.reflection.lastWatch); since < minWatchGap {
		if err := sleep.For(ctx, s.reflection.addJitter(minWatchGap-since, 1.5)); err != nil {
			return nil, err
		}
	}
	s.reflection.lastWatch = time.Now()
	opts.LabelSelector, opts.FieldSelector = s.reflection.table.options.LabelSelector, s.reflection.table.options.FieldSelector
	w, err := s.reflection.table.resource.Watch(ctx, opts)
	if err == nil || ctx.Err() != nil {
		return w, err
	}
	s.reflection.table.recordFailure(err)
	s.reflection.watchError = err
	if wait, asked := RetryAfter(err); asked {
		if ended := sleep.For(ctx, s.reflection.addJitter(wait, 1.25)); ended != nil {
			return nil, errors.Join(err, ended)
		}
	}
	return nil, err
}

// reflectorSink receives the events of the reflector and changes the table.
type reflectorSink[T Object, V any] struct {
	reflection *reflection[T, V]
}

func (s *reflectorSink[T, V]) Add(o any) error { return s.Update(o) }
func (s *reflectorSink[T, V]) Resync() error   { return nil }
func (s *reflectorSink[T, V]) Bookmark(string) error {
	s.reflection.table.recordBookmark(time.Now())
	return nil
}

// UpdateResourceVersion stores version, the resource version of the last received event.
func (s *reflectorSink[T, V]) UpdateResourceVersion(version string) { s.reflection.version = version }

// Replace does nothing, because listAll has already stored the listed objects in the table.
func (s *reflectorSink[T, V]) Replace([]any, string) error { return nil }

func (s *reflectorSink[T, V]) Update(o any) error {
	object, ok := o.(T)
	if !ok {
		return errUndecodable
	}
	s.callChanged(s.reflection.table.putObject(object, time.Now()))
	return nil
}

func (s *reflectorSink[T, V]) Delete(o any) error {
	object, ok := o.(T)
	if !ok {
		return errUndecodable
	}
	key := Key(object.GetNamespace(), object.GetName())
	s.callChanged(s.reflection.table.removeKey(key, time.Now()))
	return nil
}

func (s *reflectorSink[T, V]) callChanged(changed []string) {
	if len(changed) > 0 && s.reflection.table.options.Changed != nil {
		s.reflection.table.options.Changed(changed...)
	}
}
