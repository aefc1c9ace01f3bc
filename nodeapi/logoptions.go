// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// queryError is why a query of /containerLogs is refused: the status, and the answer, which tells no more than the kubelet's.
type queryError struct {
	code int
	text string
}

func (e *queryError) Error() string { return e.text }

// logOptions reads the query of /containerLogs, with the parameter tail of old clients, which goes before tailLines; all stands for no
// limit. The status that goes with an error is 400 for what cannot be read, and 422 for values that are invalid. Source:
// getContainerLogs in pkg/kubelet/server/server.go and ValidatePodLogOptions.
func logOptions(query url.Values) (o *corev1.PodLogOptions, status int, err error) {
	o = new(corev1.PodLogOptions)
	if fail := decodeLogOptions(query, o); fail != nil {
		return nil, 400, &queryError{400, `{"message": "Unable to decode query."}`}
	}
	if !validLogOptions(o) {
		return nil, 422, &queryError{422, `{"message": "Invalid request."}`}
	}
	return o, 0, nil
}

func decodeLogOptions(query url.Values, o *corev1.PodLogOptions) (err error) {
	d := queryDecoder{query: query}
	o.Container = d.text("container")
	o.Follow, o.Previous, o.Timestamps = d.flag("follow"), d.flag("previous"), d.flag("timestamps")
	o.InsecureSkipTLSVerifyBackend = d.flag("insecureSkipTLSVerifyBackend")
	o.SinceSeconds, o.LimitBytes = d.number("sinceSeconds"), d.number("limitBytes")
	o.SinceTime = d.time("sinceTime")
	switch tail := query.Get("tail"); tail {
	case "":
		o.TailLines = d.number("tailLines")
	case "all":
	default:
		o.TailLines = d.parse("tail", tail)
	}
	if query.Has("stream") {
		stream := d.text("stream")
		o.Stream = &stream
	}
	return d.err
}

// queryDecoder reads parameters as the API server does: the first value of each.
type queryDecoder struct {
	query url.Values
	err   error
}

func (d *queryDecoder) text(name string) string { return d.query.Get(name) }

// flag is true for all values but 0 and false, also for an empty one.
func (d *queryDecoder) flag(name string) bool {
	value := d.query.Get(name)
	return d.query.Has(name) && value != "0" && !strings.EqualFold(value, "false")
}

func (d *queryDecoder) number(name string) *int64 {
	if !d.query.Has(name) {
		return nil
	}
	return d.parse(name, d.query.Get(name))
}

func (d *queryDecoder) parse(name, value string) *int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		d.err = fmt.Errorf("%s: %w", name, err)
		return nil
	}
	return &n
}

func (d *queryDecoder) time(name string) *metav1.Time {
	if !d.query.Has(name) {
		return nil
	}
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(d.query.Get(name)); err != nil {
		d.err = fmt.Errorf("%s: %w", name, err)
	}
	return &t
}

func validLogOptions(o *corev1.PodLogOptions) bool {
	below := func(n *int64, least int64) bool { return n != nil && *n < least }
	switch {
	case below(o.TailLines, 0), below(o.LimitBytes, 1), below(o.SinceSeconds, 1):
		return false
	case o.SinceSeconds != nil && o.SinceTime != nil:
		return false
	case o.Stream == nil || *o.Stream == corev1.LogStreamAll:
		return true
	case *o.Stream != corev1.LogStreamStdout && *o.Stream != corev1.LogStreamStderr:
		return false
	}
	return o.TailLines == nil
}

// since returns the time before which lines are left out; the zero time leaves out nothing.
func since(o *corev1.PodLogOptions, now time.Time) (at time.Time) {
	if o.SinceSeconds != nil {
		// A duration has no room for more than 292 years.
		at = now.Add(-time.Duration(min(*o.SinceSeconds, int64(1<<63-1)/int64(time.Second))) * time.Second)
	}
	if o.SinceTime != nil && o.SinceTime.After(at) {
		at = o.SinceTime.Time
	}
	return at
}
