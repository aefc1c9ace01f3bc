// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package redirect limits the HTTP redirects that the server of a pod can cause. Without a limit, a pod could make the agent send
// requests to any host in the network of the node.
package redirect

import (
	"errors"
	"net/http"
)

// limit is the maximum number of redirects of a request.
const limit = 10

// SameHost permits up to 10 redirects to the host name of the first request, at any port and with http or https. It is a
// value for the field CheckRedirect of an [http.Client]. The response to other redirects is the redirect itself.
func SameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= limit {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}
