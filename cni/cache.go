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

// maxCached is the most bytes of a cached attachment: a configuration in base64, and a result.
const maxCached = 4 << 20

// checkCached removes the cached result of an attachment if libcni would not survive it: the file may have been damaged.
func (p *Plugins) checkCached(n *Network, a Attachment) error {
	file, err := p.cacheFile(n, a)
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

// forget removes the cached result of an attachment that is gone.
func (p *Plugins) forget(n *Network, a Attachment) error {
	file, err := p.cacheFile(n, a)
	if err == nil {
		err = os.Remove(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// detached reports whether an attachment is gone after a DEL with this error. Not all plugins take a namespace or an
// object that is gone for success, as they should. What counts is what a plugin reports, not what it prints when it fails
// in another way.
func detached(err error, netns string) bool {
	if err == nil {
		return true
	}
	said, ok := errors.AsType[*types.Error](err)
	if !ok {
		return false
	}
	text := said.Error()
	return said.Code == types.ErrUnknownContainer || strings.Contains(text, "not found") ||
		netns == "" && strings.Contains(text, "no such file or directory")
}

// cached returns the attachments in libcni's cache of a container, or of all if it is empty, that have the configuration
// they were made with. Others say nothing that a DEL could use.
func (p *Plugins) cached(container string) ([]networkAttachment, error) {
	all, err := p.lib.GetCachedAttachments(container)
	if err != nil {
		return nil, err
	}
	var found []networkAttachment
	for _, c := range all {
		n, err := ParseNetwork(c.Config)
		if err != nil || n.Name != c.Network || checkID(c.ContainerID) != nil {
			continue
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
