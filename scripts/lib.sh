# What the scripts share. Sourced, with bash; leaves the shell in the root of
# the repository.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:/usr/local/go/bin

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

need_go() {
  have go || die "Go 1.26 or later is needed: see https://go.dev/dl/"
}

# The places where internal/postgres looks for server binaries.
have_postgres() {
  [ -n "${POSTLANE_POSTGRES_BIN:-}" ] || have postgres ||
    { have pg_config && [ -x "$(pg_config --bindir)/postgres" ]; } ||
    compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ||
    compgen -G '/usr/pgsql-*/bin/postgres' >/dev/null ||
    compgen -G '/opt/homebrew/opt/postgresql@*/bin/postgres' >/dev/null ||
    compgen -G '/usr/local/opt/postgresql@*/bin/postgres' >/dev/null ||
    compgen -G '/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin/postgres' >/dev/null
}

# Runs a command as root, or says that this user may not.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif have sudo && sudo -n true 2>/dev/null; then
    sudo "$@"
  else
    return 1
  fi
}

# Installs PostgreSQL's server from the system's packages where there is none.
need_postgres() {
  have_postgres && return
  local manual
  if have apt-get; then
    manual="apt-get install postgresql"
    say "installing PostgreSQL: $manual"
    apt_postgres && return
  elif have dnf; then
    manual="dnf install postgresql-server"
    say "installing PostgreSQL: $manual"
    as_root dnf install -y -q postgresql-server >&2 && return
  elif have apk; then
    manual="apk add postgresql"
    say "installing PostgreSQL: $manual"
    as_root apk add -q postgresql >&2 && return
  elif have brew; then
    manual="brew install postgresql@17"
    say "installing PostgreSQL: $manual"
    brew install -q postgresql@17 >&2 && return
  else
    manual="install PostgreSQL 15 or later by your system's packages"
  fi
  die "PostgreSQL's server is missing and could not be installed. Do it as root and run this again: $manual"
}

# Debian's package makes and starts a database of its own, which nobody here
# asked for, unless it is told not to.
apt_postgres() {
  local quiet=/etc/postgresql-common/createcluster.d/postlane.conf
  as_root sh -ec "
    mkdir -p $(dirname $quiet)
    [ -d /etc/postgresql ] || echo 'create_main_cluster = false' >$quiet
    trap 'rm -f $quiet' EXIT
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends postgresql" >&2
}
