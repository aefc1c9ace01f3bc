// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
)

// Prefix and suffix of a WebSocket subprotocol that carries a SPDY connection, such as SPDY/3.1+portforward.k8s.io.
const (
	tunnelPrefix = "SPDY/3.1+"
	tunnelSuffix = ".k8s.io"
)

// serveExec starts an exec session in the newest running instance of a container. Like the kubelet, it ignores the pod UID.
func (s *Server) serveExec(w http.ResponseWriter, r *http.Request, pathParams params) {
	o, err := parseStreamOptions(r)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	pod := s.findPodOrReply(w, pathParams)
	if pod == nil {
		return
	}
	id, err := s.runningContainer(r.Context(), pod, pathParams["container"])
	switch {
	case err != nil:
		replyRuntimeError(w, err)
	case id == "":
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("container not found (%q)", pathParams["container"]))
	default:
		s.o.Streams.ServeExec(w, r, id, r.URL.Query()["command"], o)
	}
}

// serveAttach starts an attach session with a container.
func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request, pathParams params) {
	o, err := parseStreamOptions(r)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	pod := s.findPodOrReply(w, pathParams)
	if pod == nil {
		return
	}
	id, err := s.runningContainer(r.Context(), pod, pathParams["container"])
	spec := containerSpec(pod, pathParams["container"])
	switch {
	case err != nil:
		replyRuntimeError(w, err)
	case id == "":
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("container %s not found in pod %s", pathParams["container"], fullName(pod)))
	case pathParams["uid"] != "" && pathParams["uid"] != string(pod.UID):
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("pod %s not found", fullName(pod)))
	case spec == nil:
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("container %s not found in pod %s", pathParams["container"], fullName(pod)))
	default:
		o.TTY = spec.TTY // the container's spec decides, not the request
		o.Stderr = o.Stderr && !o.TTY
		s.o.Streams.ServeAttach(w, r, id, o)
	}
}

// servePortForward starts a port-forward session with the pod given by pathParams, in its newest ready sandbox.
func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request, pathParams params) {
	ports, err := parseForwardPorts(r)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	pod := s.findPodOrReply(w, pathParams)
	if pod == nil {
		return
	}
	if pathParams["uid"] != "" && pathParams["uid"] != string(pod.UID) {
		writeText(w, http.StatusNotFound, "pod not found")
		return
	}
	part, err := s.runningPart(r.Context(), pod)
	switch {
	case err != nil:
		replyRuntimeError(w, err)
	case len(part.Sandboxes) == 0:
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("pod not found (%q)", fullName(pod)))
	default:
		s.o.Streams.ServePortForward(w, r, part.Sandboxes[0].ID, ports)
	}
}

// serveRun runs the command of the form value cmd, with words separated by single spaces, in a container. It responds with the
// output.
func (s *Server) serveRun(w http.ResponseWriter, r *http.Request, pathParams params) {
	pod := s.findPodOrReply(w, pathParams)
	if pod == nil {
		return
	}
	id, err := s.runningContainer(r.Context(), pod, pathParams["container"])
	if err == nil && id == "" {
		err = fmt.Errorf("container not found (%q)", pathParams["container"])
	}
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	cmd := r.FormValue("cmd")
	result, err := s.o.Execer.ExecSync(r.Context(), id, strings.Split(cmd, " "), 0)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", cmd, result.ExitCode, result.Stderr)
	}
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	output := append(result.Stdout, result.Stderr...)
	if output == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	writeJSON(w, output)
}

// parseStreamOptions returns the streams that a request specifies in its form values. With a terminal, Stderr is false.
// Source: NewOptions in k8s.io/cri-streaming/pkg/streaming/remotecommand.
func parseStreamOptions(r *http.Request) (cri.StreamOptions, error) {
	wants := func(name string) bool { return r.FormValue(name) == "1" }
	o := cri.StreamOptions{Stdin: wants("input"), Stdout: wants("output"), Stderr: wants("error"), TTY: wants("tty")}
	o.Stderr = o.Stderr && !o.TTY
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

// parseForwardPorts returns the ports in the query of a WebSocket request. Source: NewV4Options in
// k8s.io/cri-streaming/pkg/streaming/portforward.
func parseForwardPorts(r *http.Request) (ports []int32, err error) {
	if !isWebSocket(r) || isTunnel(r) {
		return nil, nil // a SPDY client sends the port with each stream
	}
	lists := r.URL.Query()["port"]
	if len(lists) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	for _, list := range lists {
		if list == "" {
			return nil, errors.New(`query parameter "port" cannot be empty`)
		}
		for word := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(word, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("unable to parse %q as a port: %w", list, err)
			}
			if port == 0 {
				return nil, fmt.Errorf("port %q must be > 0", list)
			}
			ports = append(ports, int32(port))
		}
	}
	return ports, nil
}

// isWebSocket reports whether r requests an upgrade to a WebSocket.
func isWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	for _, line := range r.Header["Connection"] {
		if strings.Contains(strings.ToLower(line), "upgrade") {
			return true
		}
	}
	return false
}

// isTunnel reports whether r requests a WebSocket that carries a SPDY connection. Like the kubelet, it reads only the first
// header line with subprotocols.
func isTunnel(r *http.Request) bool {
	for name := range strings.SplitSeq(r.Header.Get("Sec-Websocket-Protocol"), ",") {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, tunnelPrefix) && strings.HasSuffix(name, tunnelSuffix) {
			return true
		}
	}
	return false
}
