// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// comparedRequests are the requests of all tables.
func comparedRequests() []comparedRequest {
	table := slices.Concat(pageRequests(), logRequests(), sessionRequests(), forwardRequests(), runRequests())
	for i := range table {
		table[i].target = strings.ReplaceAll(table[i].target, "WEB", "default/web-NODE")
	}
	return table
}

func getRequests(part bodyPart, targets ...string) (all []comparedRequest) {
	for _, target := range targets {
		all = append(all, comparedRequest{http.MethodGet, target, nil, part})
	}
	return all
}

func methodRequests(method string, targets ...string) (all []comparedRequest) {
	for _, target := range targets {
		all = append(all, comparedRequest{method, target, nil, text})
	}
	return all
}

func pageRequests() []comparedRequest {
	return slices.Concat(
		getRequests(values, "/pods", "/pods/", "/%70ods", "/runningpods/"),
		getRequests(shape, "/stats/summary", "/stats/summary?only_cpu_and_memory=true"),
		getRequests(subset, "/configz"),
		getRequests(noBody, "/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis", "/debug/pprof/", "/debug/pprof/cmdline",
			"/debug/pprof/heap", "/debug/pprof/goroutine?debug=1", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1",
			"/debug/pprof/symbol", "/statusz", "/flagz"),
		getRequests(text, "/", "/x", "/podsx", "/pods/x", "//pods", "/./pods", "/pods/../configz", "/pods/%2e%2e/configz", "/runningpods", "/stats", "/stats/",
			"/stats/x", "/spec/", "/allocatedPods", "/healthz", "/healthz/", "/healthz/ping", "/healthz/log", "/healthz/syncloop", "/healthz/x",
			"/metrics/", "/metrics/x", "/configz/", "/configz/x", "/debug/pprof", "/debug/pprof/none", "/debug/flags/v", "/debug/flags", "/debug/",
			"/logs", "/logs/", "/logs/none", "/logs/../etc/passwd", "/logs/%2e%2e/etc/passwd", "/logs/?query=%20", "/logs/?query=/a&query=/b",
			"/logs/x?query=a", "/logs/?query=a&boot=1", "/logs/?query=a&tailLines=-1", "/logs/?query=none.log", "/logs/?query=a&sinceTime=x", "/logs/?query=a&pattern=["),
		methodRequests(http.MethodPut, "/debug/flags/v", "/pods"),
		[]comparedRequest{{http.MethodPost, "/configz", nil, subset}},
		methodRequests(http.MethodPost, "/pods", "/healthz", "/metrics", "/logs/", "/x", "/runningpods/", "/debug/flags/v"),
		methodRequests(http.MethodDelete, "/pods", "/stats/summary", "/metrics/cadvisor"),
		methodRequests(http.MethodHead, "/pods", "/healthz", "/configz", "/logs/", "/metrics", "/stats/summary", "/x"),
		methodRequests("PATCH", "/pods", "/x"),
		methodRequests("BREW", "/pods", "/healthz"),
	)
}

func logRequests() (all []comparedRequest) {
	for _, query := range []string{
		"", "tailLines=3", "tailLines=0", "tailLines=-1", "tailLines=x", "tailLines=9223372036854775808", "tail=2", "tail=all", "tail=x", "tail=2&tailLines=5",
		"limitBytes=10", "limitBytes=0", "limitBytes=-1", "limitBytes=x", "tailLines=4&limitBytes=20", "sinceSeconds=36000", "sinceSeconds=0", "sinceSeconds=-1",
		"sinceSeconds=x", "sinceSeconds=5&sinceTime=2020-01-01T00:00:00Z", "sinceTime=2020-01-01T00:00:00Z", "sinceTime=2020-01-01T00:00:00.5%2b02:00",
		"sinceTime=2999-01-01T00:00:00Z", "sinceTime=x", "timestamps=true", "timestamps=1", "timestamps=x", "follow=x&limitBytes=20", "follow=false", "previous=true",
		"previous=x", "stream=All", "stream=Stdout", "stream=x", "unknown=1", "insecureSkipTLSVerifyBackend=true", "container=main", "tailLines=1&tailLines=2", "%zz",
	} {
		all = append(all, getRequests(text, strings.TrimSuffix("/containerLogs/WEB/log?"+query, "?"))...)
	}
	return slices.Concat(all,
		getRequests(text, "/containerLogs/WEB/init", "/containerLogs/WEB/init?follow=true", "/containerLogs/WEB/main", "/containerLogs/WEB/none",
			"/containerLogs/default/dead-NODE/main", "/containerLogs/default/dead-NODE/main?follow=true", "/containerLogs/default/dead-NODE/main?previous=true",
			"/containerLogs/default/waiting-NODE/main", "/containerLogs/default/waiting-NODE/main?previous=true", "/containerLogs/default/none/log",
			"/containerLogs/other/web-NODE/log", "/containerLogs", "/containerLogs/", "/containerLogs/default", "/containerLogs/WEB", "/containerLogs/WEB/",
			"/containerLogs/WEB/log/", "/containerLogs/WEB/log/x", "/containerLogs//web-NODE/log", "/containerLogs/default//log", "/containerLogs/WEB/l%6fg",
			"/containerLogs/WEB/log%2f", "/containerLogs/WEB/log%00"),
		methodRequests(http.MethodPost, "/containerLogs/WEB/log"), methodRequests(http.MethodHead, "/containerLogs/WEB/log"), methodRequests(http.MethodDelete, "/containerLogs/WEB/log"))
}

// upgradeRequests are requests for an upgrade to another protocol, one for each value of the header.
func upgradeRequests(method, target, upgrade, header string, values ...string) (all []comparedRequest) {
	for _, value := range values {
		h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {upgrade}}
		if value != "" {
			h[header] = []string{value}
		}
		if upgrade == "websocket" {
			h["Sec-Websocket-Key"], h["Sec-Websocket-Version"] = []string{"dGhlIHNhbXBsZSBub25jZQ=="}, []string{"13"}
		}
		all = append(all, comparedRequest{method, target, h, text})
	}
	return all
}

const (
	protocolHeader  = "X-Stream-Protocol-Version"
	websocketHeader = "Sec-Websocket-Protocol"
)

func sessionRequests() (all []comparedRequest) {
	for _, kind := range []string{"/exec", "/attach"} {
		with := "/main?output=1&command=true"
		all = append(all, getRequests(text, kind, kind+"/", kind+"/default", kind+"/WEB", kind+"/WEB"+with, kind+"/WEB/main", kind+"/WEB/main?command=true",
			kind+"/WEB/main?stdout=true", kind+"/WEB/main?output=true", kind+"/WEB/main?tty=1&error=1", kind+"/WEB/main?input=1", kind+"/WEB/main?output=1",
			kind+"/WEB/none?output=1&command=true", kind+"/default/none"+with, kind+"/other/web-NODE"+with, kind+"/default/dead-NODE"+with,
			kind+"/default/waiting-NODE"+with, kind+"/WEB/UID"+with, kind+"/WEB/none"+with, kind+"/WEB/UID/x"+with, kind+"/WEB/main/?output=1")...)
		all = append(all, methodRequests(http.MethodPost, kind+"/WEB"+with, kind+"/WEB/none?output=1&command=true", kind+"/default/none"+with, kind+"/WEB/UID"+with)...)
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodHead} {
			all = append(all, methodRequests(method, kind+"/WEB"+with)...)
		}
		target := kind + "/WEB" + with
		all = append(all, upgradeRequests(http.MethodPost, target, "SPDY/3.1", protocolHeader, "v4.channel.k8s.io", "channel.k8s.io", "x", "x, v4.channel.k8s.io", "", "v5.channel.k8s.io")...)
		all = append(all, upgradeRequests(http.MethodGet, target, "SPDY/3.1", protocolHeader, "v4.channel.k8s.io")...)
		all = append(all, upgradeRequests(http.MethodGet, target, "websocket", websocketHeader,
			"", "channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "v5.channel.k8s.io", "x", "x, v4.channel.k8s.io",
			"v5.channel.k8s.io, v4.channel.k8s.io", "v2.channel.k8s.io")...)
		all = append(all, upgradeRequests(http.MethodPost, target, "websocket", websocketHeader, "v4.channel.k8s.io", "v5.channel.k8s.io")...)
		all = append(all, upgradeRequests(http.MethodGet, target, "h2c", protocolHeader, "", "v4.channel.k8s.io")...)
		all = append(all, upgradeRequests(http.MethodPost, kind+"/WEB/none?output=1&command=true", "SPDY/3.1", protocolHeader, "v4.channel.k8s.io")...)
		all = append(all, upgradeRequests(http.MethodPost, kind+"/WEB/main?command=true", "SPDY/3.1", protocolHeader, "v4.channel.k8s.io")...)
	}
	return append(all, upgradeRequests(http.MethodGet, "/exec/WEB/main?output=1&command=/no/such/program", "websocket", websocketHeader, "v4.channel.k8s.io", "v5.channel.k8s.io")...)
}

func forwardRequests() []comparedRequest {
	const target = "/portForward/WEB"
	return slices.Concat(
		getRequests(text, "/portForward", "/portForward/", "/portForward/default", target, target+"?port=80", target+"/UID", target+"/other-uid", target+"/UID/x", target+"/",
			"/portForward/default/none", "/portForward/other/web-NODE", "/portForward/default/dead-NODE"),
		methodRequests(http.MethodPost, target, "/portForward/default/none", target+"/other-uid"), methodRequests(http.MethodPut, target), methodRequests(http.MethodDelete, target),
		upgradeRequests(http.MethodPost, target, "SPDY/3.1", protocolHeader, "portforward.k8s.io", "x", "", "v4.channel.k8s.io"),
		upgradeRequests(http.MethodPost, target+"/UID", "SPDY/3.1", protocolHeader, "portforward.k8s.io"),
		upgradeRequests(http.MethodPost, "/portForward/default/dead-NODE", "SPDY/3.1", protocolHeader, "portforward.k8s.io"),
		upgradeRequests(http.MethodGet, target, "websocket", websocketHeader, "", "v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io", "x, SPDY/3.1+portforward.k8s.io", "SPDY/3.1+x"),
		upgradeRequests(http.MethodGet, target+"?port=80", "websocket", websocketHeader, "", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "x", "portforward.k8s.io"),
		upgradeRequests(http.MethodGet, target+"?port=80&port=81,82", "websocket", websocketHeader, "v4.channel.k8s.io"),
		upgradeRequests(http.MethodGet, target+"?port=x", "websocket", websocketHeader, "v4.channel.k8s.io"),
		upgradeRequests(http.MethodGet, target+"?port=0", "websocket", websocketHeader, "v4.channel.k8s.io"),
		upgradeRequests(http.MethodGet, target+"?port=70000", "websocket", websocketHeader, "v4.channel.k8s.io"),
		upgradeRequests(http.MethodGet, target+"?port=", "websocket", websocketHeader, "v4.channel.k8s.io"),
	)
}

func runRequests() []comparedRequest {
	echo := "?cmd=" + url.QueryEscape("echo hello to you")
	return slices.Concat(
		methodRequests(http.MethodPost, "/run/WEB/main"+echo, "/run/WEB/UID/main"+echo, "/run/WEB/other-uid/main"+echo, "/run/WEB/main?cmd=false", "/run/WEB/main?cmd=/no/such/program",
			"/run/WEB/main", "/run/WEB/main?cmd=", "/run/WEB/none"+echo, "/run/default/none/main"+echo, "/run/default/dead-NODE/main"+echo, "/run/WEB"+echo, "/run/", "/run",
			"/checkpoint/default/none/main", "/checkpoint/WEB/none", "/checkpoint/WEB/main?timeout=x", "/checkpoint/WEB/main?timeout=-1", "/checkpoint/WEB", "/checkpoint/",
			"/checkpoint/default/dead-NODE/main"),
		getRequests(text, "/run/WEB/main"+echo, "/checkpoint/WEB/main"),
		methodRequests(http.MethodDelete, "/run/WEB/main", "/checkpoint/WEB/main"),
	)
}
