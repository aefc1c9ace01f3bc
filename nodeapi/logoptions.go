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

// queryError is the error for an invalid query of /containerLogs. The text is the kubelet's response.
type queryError struct {
	code int
	text string
}

func (e *queryError) Error() string { return e.text }

// parseLogOptions parses the query of a request for /containerLogs. On error, status is the HTTP status. Source:
// getContainerLogs in pkg/kubelet/server/server.go and ValidatePodLogOptions.
func parseLogOptions(query url.Values) (o *corev1.PodLogOptions, status int, err error) {
	o = new(corev1.PodLogOptions)
	if fail := decodeLogOptions(query, o); fail != nil {
		return nil, 400, &queryError{400, `{"message": "Unable to decode query."}`}
	}
	if !areLogOptionsValid(o) {
		return nil, 422, &queryError{422, `{"message": "Invalid request."}`}
	}
	return o, 0, nil
}

func decodeLogOptions(query url.Values, opts *corev1.PodLogOptions) (err error) {
	d := queryDecoder{query: query}
	opts.Container = d.readString("container")
	opts.Follow, opts.Previous, opts.Timestamps = d.readBool("follow"), d.readBool("previous"), d.readBool("timestamps")
	opts.InsecureSkipTLSVerifyBackend = d.readBool("insecureSkipTLSVerifyBackend")
	opts.SinceSeconds, opts.LimitBytes = d.readInt("sinceSeconds"), d.readInt("limitBytes")
	opts.SinceTime = d.readTime("sinceTime")
	switch tail := query.Get("tail"); tail {
	case "":
		opts.TailLines = d.readInt("tailLines")
	case "all":
	default:
		opts.TailLines = d.parseInt("tail", tail)
	}
	if query.Has("stream") {
		stream := d.readString("stream")
		opts.Stream = &stream
	}
	return d.err
}

// queryDecoder parses query parameters. Like the API server, it uses the first value of a parameter. The field err has the last
// error.
type queryDecoder struct {
	query url.Values
	err   error
}

func (d *queryDecoder) readString(name string) string { return d.query.Get(name) }

// readBool returns a query parameter as a bool. It is false if the parameter is missing, 0 or false. An empty value is true.
func (d *queryDecoder) readBool(name string) bool {
	value := d.query.Get(name)
	return d.query.Has(name) && value != "0" && !strings.EqualFold(value, "false")
}

func (d *queryDecoder) readInt(name string) *int64 {
	if !d.query.Has(name) {
		return nil
	}
	return d.parseInt(name, d.query.Get(name))
}

func (d *queryDecoder) parseInt(name, value string) *int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		d.err = fmt.Errorf("%s: %w", name, err)
		return nil
	}
	return &n
}

func (d *queryDecoder) readTime(name string) *metav1.Time {
	if !d.query.Has(name) {
		return nil
	}
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(d.query.Get(name)); err != nil {
		d.err = fmt.Errorf("%s: %w", name, err)
	}
	return &t
}

func areLogOptionsValid(opts *corev1.PodLogOptions) bool {
	below := func(n *int64, least int64) bool { return n != nil && *n < least }
	switch {
	case below(opts.TailLines, 0), below(opts.LimitBytes, 1), below(opts.SinceSeconds, 1):
		return false
	case opts.SinceSeconds != nil && opts.SinceTime != nil:
		return false
	case opts.Stream == nil || *opts.Stream == corev1.LogStreamAll:
		return true
	case *opts.Stream != corev1.LogStreamStdout && *opts.Stream != corev1.LogStreamStderr:
		return false
	}
	return opts.TailLines == nil
}

// sinceTime returns the time from which opts requests log lines, or zero if opts requests all lines. now is the current
// time, to which SinceSeconds is relative.
func sinceTime(opts *corev1.PodLogOptions, now time.Time) (at time.Time) {
	if opts.SinceSeconds != nil {
		// A Duration is limited to 292 years.
		at = now.Add(-time.Duration(min(*opts.SinceSeconds, int64(1<<63-1)/int64(time.Second))) * time.Second)
	}
	if opts.SinceTime != nil && opts.SinceTime.After(at) {
		at = opts.SinceTime.Time
	}
	return at
}
