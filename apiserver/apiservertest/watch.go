// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarks is how often a watch that asks for it is told the version, and expiry how long one lasts that does not say.
const (
	bookmarks = time.Minute
	expiry    = 45 * time.Minute
)

// selector returns what a list or a watch selects.
func (c *call) selector() (func(Object) bool, error) {
	query := c.r.URL.Query()
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, need := range byField.Requirements() {
		if _, ok := fieldOf(c.kind.create(), need.Field); !ok {
			return nil, apierrors.NewBadRequest("field label not supported: " + need.Field)
		}
	}
	return func(obj Object) bool {
		if c.namespace != "" && obj.GetNamespace() != c.namespace || !byLabel.Matches(labels.Set(obj.GetLabels())) {
			return false
		}
		for _, need := range byField.Requirements() {
			is, _ := fieldOf(obj, need.Field)
			if (is == need.Value) != (need.Operator != "!=") {
				return false
			}
		}
		return true
	}, nil
}

// notNewer refuses a version that the server has not come to, as after a restore.
func notNewer(query url.Values, version int64) error {
	asked, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	if err != nil || asked <= version {
		return nil
	}
	tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return tooLarge
}

// stream is one watch.
type stream struct {
	*call
	*frames
	matches func(Object) bool
	version int64 // all up to it was sent
	marks   bool  // bookmarks are wanted
}

// watch sends what changes until the client, the time or a fault ends it.
func (c *call) watch() error {
	matches, err := c.selector()
	if err != nil {
		return err
	}
	query := c.r.URL.Query()
	if err := notNewer(query, c.store.current()); err != nil && query.Get("sendInitialEvents") == "true" {
		return err
	}
	s := &stream{call: c, matches: matches, marks: query.Get("allowWatchBookmarks") == "true"}
	initial, err := s.begin(query)
	if err != nil {
		return err
	}
	cut := c.fault.cuts()
	s.frames = c.openFrames()
	c.log.watching(c.kind.resource, 1)
	defer c.log.watching(c.kind.resource, -1)
	for _, obj := range initial {
		if s.write(watch.Added, obj) != nil {
			return nil //nolint:nilerr // The client is gone.
		}
	}
	if query.Get("sendInitialEvents") == "true" && s.marks {
		s.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	s.flush()
	s.follow(cut, query)
	return nil
}

func (s *store) current() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// begin finds out from which version a watch starts, and what it is sent first.
func (s *stream) begin(query url.Values) (initial []Object, err error) {
	text := query.Get("resourceVersion")
	if text == "" || text == "0" || query.Get("sendInitialEvents") == "true" {
		initial, s.version = s.store.list(s.kind, s.matches)
		if query.Get("sendInitialEvents") == "false" {
			initial = nil
		}
		return initial, nil
	}
	if s.version, err = strconv.ParseInt(text, 10, 64); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if _, _, _, ok := s.store.since(s.version); !ok {
		return nil, apierrors.NewResourceExpired("too old resource version: " + text)
	}
	return nil, nil
}

// follow sends changes as they come.
func (s *stream) follow(cut <-chan struct{}, query url.Values) {
	limit := expiry
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		limit = time.Duration(seconds) * time.Second
	}
	end, tick := time.NewTimer(limit), time.NewTicker(bookmarks)
	defer end.Stop()
	defer tick.Stop()
	var broken <-chan time.Time
	if s.cutAfter > 0 {
		timer := time.NewTimer(s.cutAfter)
		defer timer.Stop()
		broken = timer.C
	}
	for {
		next, ok := s.send()
		if !ok {
			return
		}
		select {
		case <-next:
		case <-tick.C:
			if s.marks {
				s.bookmark(nil)
			}
		case <-end.C:
			return
		case <-broken:
			panic(http.ErrAbortHandler)
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-s.ended().Done():
			return
		}
	}
}

// send sends all that has changed, and returns what is closed with the next change. It is false when the watch has ended.
func (s *stream) send() (next <-chan struct{}, ok bool) {
	changes, version, next, ok := s.store.since(s.version)
	if !ok {
		expired := apierrors.NewResourceExpired("too old resource version").ErrStatus
		_ = s.write(watch.Error, &expired) // the watch ends either way
		s.flush()
		return nil, false
	}
	for _, c := range changes {
		if event, obj, wanted := c.event(s.kind, s.matches); wanted && s.write(event, obj) != nil {
			return nil, false
		}
	}
	if len(changes) > 0 {
		s.flush()
	}
	s.version = max(s.version, version)
	return next, true
}

// bookmark tells a watch the version that it has come to.
func (s *stream) bookmark(annotations map[string]string) {
	obj := s.kind.create()
	obj.SetResourceVersion(strconv.FormatInt(s.version, 10))
	obj.SetAnnotations(annotations)
	_ = s.write(watch.Bookmark, obj) // the client is gone, which ends the watch
	s.flush()
}
