// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// maxCached is the maximum size of a cache file of libcni: a configuration in base64 and a result.
const maxCached = 4 << 20

// removeDamagedCache removes the result of an attachment from libcni's cache if the cached file is damaged. libcni could
// panic when it reads such a file.
func (p *Plugins) removeDamagedCache(network *Network, attachment Attachment) error {
	file, err := p.cachePath(network, attachment)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCached+1))
	if err != nil {
		return err
	}
	var cached struct {
		Result json.RawMessage `json:"result"`
	}
	if len(data) > maxCached || json.Unmarshal(data, &cached) != nil || len(cached.Result) > 0 && checkResult(cached.Result) != nil {
		return os.Remove(file)
	}
	return nil
}

// removeCachedResult removes the result of an attachment from libcni's cache. A missing result is no error.
func (p *Plugins) removeCachedResult(network *Network, attachment Attachment) error {
	file, err := p.cachePath(network, attachment)
	if err == nil {
		err = os.Remove(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// isDetached reports whether an attachment no longer exists after DEL has returned err. netns is empty if the namespace was
// removed.
func isDetached(err error, netns string) bool {
	if err == nil {
		return true
	}
	said, ok := errors.AsType[*types.Error](err)
	if !ok {
		return false
	}
	// some plugins fail if the namespace or an object is missing, although the CNI specification requires success
	text := said.Error()
	return said.Code == types.ErrUnknownContainer || strings.Contains(text, "not found") ||
		netns == "" && strings.Contains(text, "no such file or directory")
}

// cachedAttachments returns the attachments of a container from libcni's cache, or of all containers if the ID is empty.
func (p *Plugins) cachedAttachments(containerID string) ([]networkAttachment, error) {
	all, err := p.lib.GetCachedAttachments(containerID)
	if err != nil {
		return nil, err
	}
	var found []networkAttachment
	for _, c := range all {
		n, err := ParseNetwork(c.Config)
		if err != nil || n.Name != c.Network || checkID(c.ContainerID) != nil {
			continue // DEL would fail
		}
		a := Attachment{ContainerID: c.ContainerID, Netns: c.NetNS, Interface: c.IfName, Args: c.CniArgs, Capabilities: Capabilities{}}
		for capability, value := range c.CapabilityArgs {
			if data, err := json.Marshal(value); err == nil {
				a.Capabilities[capability] = data
			}
		}
		found = append(found, networkAttachment{n, a})
	}
	return found, nil
}
