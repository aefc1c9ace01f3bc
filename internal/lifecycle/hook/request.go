// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// UserAgent is the User-Agent of HTTP handlers, as in the kubelet.
const UserAgent = "kube-lifecycle/1.37"

// newRequest builds the HTTP request of action, a lifecycle handler. Source: pkg/probe/http/request.go.
func newRequest(ctx context.Context, call Call, action *corev1.HTTPGetAction) (*http.Request, error) {
	host := cmp.Or(action.Host, call.PodIP)
	if host == "" {
		return nil, errors.New("the pod has no IP address")
	}
	port, err := findPort(call.Container, action.Port)
	if err != nil {
		return nil, err
	}
	// The path may contain a query. If it is not a valid URL reference, it is used literally.
	u, err := url.Parse(action.Path)
	if err != nil {
		u = &url.URL{Path: action.Path}
	}
	u.Scheme = cmp.Or(strings.ToLower(string(action.Scheme)), "http")
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	// Only parsing the assembled URL reveals invalid parts.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = newHeader(action.HTTPHeaders)
	req.Host = req.Header.Get("Host")
	return req, nil
}

// newHeader returns the headers in list, with default values for User-Agent and Accept.
func newHeader(list []corev1.HTTPHeader) http.Header {
	header := http.Header{}
	for _, h := range list {
		header.Add(h.Name, h.Value)
	}
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", UserAgent)
	}
	if _, ok := header["Accept"]; !ok {
		header.Set("Accept", "*/*")
	} else if header.Get("Accept") == "" {
		// An empty value means no header.
		header.Del("Accept")
	}
	return header
}

// findPort returns the port number in p. If p is a name, findPort returns the number of the container port with that name.
// Source: pkg/probe/util.go.
func findPort(container *corev1.Container, p intstr.IntOrString) (int, error) {
	port := int(p.IntVal)
	if p.Type == intstr.String {
		i := slices.IndexFunc(container.Ports, func(port corev1.ContainerPort) bool { return port.Name == p.StrVal })
		if i < 0 {
			return 0, fmt.Errorf("field port: %q names no port of the container", p.StrVal)
		}
		port = int(container.Ports[i].ContainerPort)
	}
	if port < 1 || port > 65535 {
		return 0, fmt.Errorf("field port: %d is not from 1 to 65535", port)
	}
	return port, nil
}
