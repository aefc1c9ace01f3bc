// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// resolveUser returns the user and groups of a container, or nil for the agent's own. A user without a group gets the group from
// the host's user database, or the group with its own number: never the agent's group, which may be root.
func resolveUser(s cri.ContainerSecurity) (*shim.User, error) {
	if s.RunAsUser == nil && s.RunAsUsername == "" && s.RunAsGroup == nil && len(s.SupplementalGroups) == 0 {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, nil // the request is for the agent's own user, or is ignored
	}
	ids := []int64{int64(os.Geteuid()), int64(os.Getegid())}
	var known *user.User
	switch {
	case s.RunAsUser != nil:
		ids[0], ids[1] = *s.RunAsUser, *s.RunAsUser
		known, _ = user.LookupId(strconv.FormatInt(*s.RunAsUser, 10))
	case s.RunAsUsername != "":
		var err error
		if known, err = user.Lookup(s.RunAsUsername); err != nil {
			return nil, fmt.Errorf("run_as_username %q: %w", s.RunAsUsername, err)
		}
		if ids[0], err = strconv.ParseInt(known.Uid, 10, 64); err != nil {
			return nil, fmt.Errorf("run_as_username %q: %w", s.RunAsUsername, err)
		}
	}
	if known != nil {
		if gid, err := strconv.ParseInt(known.Gid, 10, 64); err == nil {
			ids[1] = gid
		}
	}
	if s.RunAsGroup != nil {
		ids[1] = *s.RunAsGroup
	}
	u := &shim.User{Groups: make([]uint32, 0, len(s.SupplementalGroups))}
	for i, id := range append(ids, s.SupplementalGroups...) {
		if id < 0 || id >= 1<<32-1 {
			return nil, fmt.Errorf("security context: %d is not a user or group ID", id)
		}
		if i >= 2 {
			u.Groups = append(u.Groups, uint32(id))
		}
	}
	u.UID, u.GID = uint32(ids[0]), uint32(ids[1])
	return u, nil
}

// ContainerUser converts the user of a shim to the form of cri.Container.
func ContainerUser(u *shim.User) *cri.ContainerUser {
	c := &cri.ContainerUser{UID: int64(u.UID), GID: int64(u.GID)}
	for _, g := range u.Groups {
		c.SupplementalGroups = append(c.SupplementalGroups, int64(g))
	}
	return c
}
