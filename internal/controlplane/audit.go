// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// auditName is the name of the audit log in the directory of a [Plane].
const auditName = "audit.log"

// auditPolicy logs the metadata of each request when its response is complete, and of each watch when it starts.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// Request is one request in the audit log.
type Request struct {
	User, UserAgent       string
	Verb                  string // such as get, list, watch or patch
	Resource, Subresource string // such as pods and status
	Namespace, Name       string
	Code                  int       // HTTP status of the response
	Time                  time.Time // when the API server received it
}

// writeAudit writes the file with the audit policy. It returns the flags that make the API server write an audit log.
func (p *Plane) writeAudit() (flags []string, err error) {
	policy := filepath.Join(p.dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	return buildFlags("audit-policy-file", policy, "audit-log-path", filepath.Join(p.dir, auditName), "audit-log-mode", "blocking"), nil
}

// Requests returns the completed requests that the API server received at the time since or later, in the order of
// completion. A watch is one request and counts as completed when it starts. Options.Audit must be set.
func (p *Plane) Requests(since time.Time) ([]Request, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, auditName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read requests: Options.Audit is not set: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return parseAudit(text, since)
}

// auditEvent has the used fields of a line of the audit log. See
// https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1.
type auditEvent struct {
	Stage     string    `json:"stage"`
	Verb      string    `json:"verb"`
	UserAgent string    `json:"userAgent"`
	Received  time.Time `json:"requestReceivedTimestamp"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// parseAudit returns the requests in an audit log that the API server received since the given time.
func parseAudit(text []byte, since time.Time) ([]Request, error) {
	var requests []Request
	for line := range bytes.Lines(text) {
		// The last line is incomplete.
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("parse audit log: %w", err)
		}
		// A watch has two lines: one when it starts and one when it ends.
		if e.Received.Before(since) || e.Verb == "watch" && e.Stage == "ResponseComplete" {
			continue
		}
		requests = append(requests, Request{
			User: e.User.Username, UserAgent: e.UserAgent, Verb: e.Verb, Resource: e.Object.Resource, Subresource: e.Object.Subresource,
			Namespace: e.Object.Namespace, Name: e.Object.Name, Code: e.Response.Code, Time: e.Received,
		})
	}
	return requests, nil
}
