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

# What as_root needs: to be root, or to become it without a password.
may_be_root() {
  [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs PostgreSQL's server from the system's packages where there is none
# and this user may; otherwise says in one line what to install.
need_postgres() {
  have_postgres && return
  local command=() install=as_root log
  if have apt-get; then
    command=(apt-get install -y -qq --no-install-recommends postgresql) install=apt_install
  elif have dnf; then
    command=(dnf install -y -q postgresql-server)
  elif have apk; then
    command=(apk add -q postgresql)
  elif have brew; then
    command=(brew install -q postgresql@17) install=
  else
    die "PostgreSQL's server, 15 or later, is missing: install it from your system's packages"
  fi
  [ -z "$install" ] || may_be_root ||
    die "PostgreSQL's server is missing, and this user may not install it: as root, ${command[*]}"

  say "installing PostgreSQL: ${command[*]}"
  log=$(mktemp)
  if ! $install "${command[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    die "PostgreSQL's server is missing and could not be installed: ${command[*]}"
  fi
  rm "$log"
}

# Debian's package makes and starts a database of its own, which nobody here
# asked for, unless it is told not to.
apt_install() {
  as_root sh -ec '
    quiet=/etc/postgresql-common/createcluster.d/postlane.conf
    mkdir -p "${quiet%/*}"
    [ -d /etc/postgresql ] || echo "create_main_cluster = false" >"$quiet"
    trap "rm -f $quiet" EXIT
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    "$@"' sh "$@"
}
