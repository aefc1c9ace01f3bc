// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// serveCheckpoint makes the runtime checkpoint a running container to a file, and responds with its path. Source: checkpoint in
// pkg/kubelet/server/server.go (KEP-2008).
func (s *Server) serveCheckpoint(w http.ResponseWriter, r *http.Request, pathParams params) {
	pod := s.findPodOrReply(w, pathParams)
	if pod == nil {
		return
	}
	name := pathParams["container"]
	if containerSpec(pod, name) == nil {
		writeText(w, http.StatusNotFound, fmt.Sprintf("container %s does not exist", name))
		return
	}
	timeout, err := checkpointTimeout(r.URL.Query()["timeout"])
	if err != nil {
		writeText(w, http.StatusNotFound, err.Error())
		return
	}
	id, err := s.runningContainer(r.Context(), pod, name)
	if err == nil && id == "" {
		err = fmt.Errorf("container %s not found", name)
	}
	file := fmt.Sprintf("checkpoint-%s-%s-%s.tar", fullName(pod), name, time.Now().Format(time.RFC3339))
	if strings.ContainsRune(file, filepath.Separator) { // Kubernetes names contain no separator
		err = fmt.Errorf("%q is no name of a file", file)
	}
	path := filepath.Join(s.o.CheckpointDir, file)
	if err == nil {
		err = s.o.Checkpointer.Checkpoint(r.Context(), id, path, timeout)
	}
	if err != nil {
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("checkpointing of %s/%s/%s failed (%s)", pathParams["namespace"], pathParams["pod"], name, err))
		return
	}
	body, err := json.Marshal(map[string][]string{"items": {path}})
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, body)
}

// checkpointTimeout parses the last value as a number of seconds. Without one, it returns zero: the default of the runtime.
func checkpointTimeout(values []string) (time.Duration, error) {
	if len(values) == 0 {
		return 0, nil
	}
	seconds, err := strconv.ParseInt(values[len(values)-1], 10, 64)
	if err != nil {
		return 0, errors.New("cannot parse value of timeout parameter")
	}
	most := int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(max(seconds, 0), most)) * time.Second, nil
}
