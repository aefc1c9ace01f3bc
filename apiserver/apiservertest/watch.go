// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"fmt"
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

const (
	bookmarkPeriod      = time.Minute      // between two bookmarks of a watch
	defaultWatchTimeout = 45 * time.Minute // duration of a watch without timeoutSeconds
)

// parseSelectors returns a function that reports whether the request selects an object. It checks the namespace, the label
// selector and the field selector.
func (c *call) parseSelectors() (func(Object) bool, error) {
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
		if _, ok := selectableField(c.kind.newObject(), need.Field); !ok {
			return nil, apierrors.NewBadRequest("field label not supported: " + need.Field)
		}
	}
	return func(obj Object) bool {
		obj = c.kind.fromStored(obj)
		if c.namespace != "" && obj.GetNamespace() != c.namespace || !byLabel.Matches(labels.Set(obj.GetLabels())) {
			return false
		}
		for _, need := range byField.Requirements() {
			is, _ := selectableField(obj, need.Field)
			if (is == need.Value) != (need.Operator != "!=") {
				return false
			}
		}
		return true
	}, nil
}

// checkVersion returns an error if the query asks for a newer resource version than the store has.
func checkVersion(query url.Values, stored int64) error {
	asked, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	// a newer version occurs after a restore of etcd
	if err != nil || asked <= stored {
		return nil
	}
	tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return tooLarge
}

// watchStream is the state of one watch.
type watchStream struct {
	call           *call
	events         *watchWriter
	matches        func(Object) bool
	version        int64 // resource version up to which changes are sent
	wantsBookmarks bool  // the client requested bookmarks
}

// watchObjects sends watch events until the client disconnects, the watch times out or a fault closes the connection.
func (c *call) watchObjects() error {
	matches, err := c.parseSelectors()
	if err != nil {
		return err
	}
	query := c.r.URL.Query()
	if err := checkVersion(query, c.server.store.currentVersion()); err != nil && query.Get("sendInitialEvents") == "true" {
		return err
	}
	s := &watchStream{call: c, matches: matches, wantsBookmarks: query.Get("allowWatchBookmarks") == "true"}
	initial, err := s.loadInitial(query)
	if err != nil {
		return err
	}
	cut := c.server.faults.disconnectSignal()
	s.events = c.startWatchResponse()
	c.server.log.countWatches(c.kind.resource, 1)
	defer c.server.log.countWatches(c.kind.resource, -1)
	for _, obj := range initial {
		if s.events.writeEvent(watch.Added, obj) != nil {
			return nil // the client has disconnected
		}
	}
	if query.Get("sendInitialEvents") == "true" && s.wantsBookmarks {
		s.sendBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	s.events.flushEvents()
	s.streamChanges(cut, query)
	return nil
}

func (s *store) currentVersion() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// loadInitial returns the objects that the watch sends first, as ADDED events. It also sets s.version, the resource version
// after which the watch reports changes.
func (s *watchStream) loadInitial(query url.Values) (initial []Object, err error) {
	text := query.Get("resourceVersion")
	if text == "" || text == "0" || query.Get("sendInitialEvents") == "true" {
		initial, s.version = s.call.server.store.listObjects(s.call.kind.storedKind(), s.matches)
		if query.Get("sendInitialEvents") == "false" {
			initial = nil
		}
		return initial, nil
	}
	if s.version, err = strconv.ParseInt(text, 10, 64); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return nil, nil
}

// streamChanges sends changes and bookmarks until the client disconnects or the watch times out. When disconnect is closed,
// it aborts the response. query contains the timeout.
func (s *watchStream) streamChanges(disconnect <-chan struct{}, query url.Values) {
	limit := defaultWatchTimeout
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		limit = time.Duration(seconds) * time.Second
	}
	end, tick := time.NewTimer(limit), time.NewTicker(bookmarkPeriod)
	defer end.Stop()
	defer tick.Stop()
	var disconnectNow <-chan time.Time
	if s.call.disconnectAfter > 0 {
		timer := time.NewTimer(s.call.disconnectAfter)
		defer timer.Stop()
		disconnectNow = timer.C
	}
	for {
		next, ok := s.sendChanges()
		if !ok {
			return
		}
		select {
		case <-next:
		case <-tick.C:
			if s.wantsBookmarks {
				s.sendBookmark(nil)
			}
		case <-end.C:
			return
		case <-disconnectNow:
			panic(http.ErrAbortHandler)
		case <-disconnect:
			panic(http.ErrAbortHandler)
		case <-s.call.clientContext().Done():
			return
		}
	}
}

// sendChanges sends the changes that the watch has not sent yet. ok is false if the watch must stop.
func (s *watchStream) sendChanges() (nextChange <-chan struct{}, ok bool) {
	changes, version, nextChange, ok := s.call.server.store.changesSince(s.version)
	if !ok {
		// A real API server ends the watch the same way, also at its start. Source: newErrWatcher in
		// apiserver/pkg/storage/cacher.
		expired := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", s.version, version)).ErrStatus
		_ = s.events.writeEvent(watch.Error, &expired) // the watch ends in any case
		s.events.flushEvents()
		return nil, false
	}
	for _, c := range changes {
		if event, obj, wanted := c.watchEvent(s.call.kind.storedKind(), s.matches); wanted && s.events.writeEvent(event, obj) != nil {
			return nil, false
		}
	}
	if len(changes) > 0 {
		s.events.flushEvents()
	}
	s.version = max(s.version, version)
	return nextChange, true
}

// sendBookmark sends a bookmark event with these annotations. The bookmark has the resource version s.version: the watch has
// sent all changes up to this version.
func (s *watchStream) sendBookmark(annotations map[string]string) {
	obj := s.call.kind.newObject()
	obj.SetResourceVersion(strconv.FormatInt(s.version, 10))
	obj.SetAnnotations(annotations)
	_ = s.events.writeEvent(watch.Bookmark, obj) // the client has disconnected, which ends the watch
	s.events.flushEvents()
}
